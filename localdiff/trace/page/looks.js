// What every page has: a look that follows the reader, keys that leave others alone, and a start that says when it fails.

const byId = (id) => document.getElementById(id);

// Looks: what the reader's system says, unless they choose; paper is always light.
function followTheme(changed) {
  const system = matchMedia("(prefers-color-scheme: dark)"), paper = matchMedia("print"), select = byId("theme");
  const apply = () => {
    if (select.value) document.documentElement.dataset.theme = select.value;
    else delete document.documentElement.dataset.theme;
    theme = paper.matches ? "light" : select.value || (system.matches ? "dark" : "light");
    changed();
  };
  for (const source of [system, paper]) source.addEventListener("change", apply);
  select.addEventListener("change", apply);
  window.addEventListener("beforeprint", () => { theme = "light"; changed(); });
  window.addEventListener("afterprint", apply);
  apply();
}

// Whether a key belongs to what has the focus: lists have keys of their own, and space presses what it is on.
function keyIsTaken(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return true;
  const { target } = event, name = target.tagName;
  if (name === "SELECT") return true;
  if (event.key === " " && /^(BUTTON|SUMMARY|INPUT)$/.test(name) && target.type !== "range") return true;
  if (name === "INPUT" && target.type === "radio" && event.key.startsWith("Arrow")) return true;
  return target.classList.contains("scroll") && /^(Arrow(Up|Down)|Home|End)$/.test(event.key);
}

async function begin(start) {
  try {
    await start();
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    byId("trouble").hidden = false;
    byId("trouble").textContent = `The steps cannot be shown: ${error.message}. A browser of 2023 or later is needed.`;
    throw error;
  }
}
