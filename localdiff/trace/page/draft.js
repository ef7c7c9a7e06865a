// Tokens as text: one span a position. Pieces reach the page only through `textContent`, so nothing in them is markup.

const MISSING = "▯";
const decoder = new TextDecoder("utf-8", { fatal: true });

// What each position of a list of ids shows; adjacent bytes that make up a character show it on the first of them.
function textsOf(run, ids) {
  const texts = new Array(ids.length);
  for (let p = 0; p < ids.length; p++) {
    const piece = run.pieces[ids[p]];
    if (typeof piece === "string") texts[p] = piece;
    else if (piece[0] === "sign") texts[p] = `⟨${piece[1]}⟩`;
    else p += bytesFrom(run, ids, p, texts) - 1;
  }
  return texts;
}

function bytesFrom(run, ids, start, texts) {
  const bytes = [];
  for (let p = start; p < ids.length && bytes.length < 4; p++) {
    const piece = run.pieces[ids[p]];
    if (typeof piece === "string" || piece[0] !== "byte") break;
    bytes.push(piece[1]);
  }
  for (let size = 1; size <= bytes.length; size++) {
    try {
      const text = decoder.decode(Uint8Array.from(bytes.slice(0, size)));
      texts[start] = /[\p{C}\p{Z}]/u.test(text) ? MISSING : text;
      texts.fill("", start + 1, start + size);
      return size;
    } catch { /* not a whole character yet */ }
  }
  texts[start] = MISSING;
  return 1;
}

const isSign = (run, id) => Array.isArray(run.pieces[id]) && run.pieces[id][0] === "sign";

// In the draft a line break is a sign, and breaks the line only where the model is settled on it; padding is a dot, or it
// would look like content.
function showToken(run, span, id, text, settled) {
  if (id === run.pad) text = "·";
  const lines = text.split("\n");
  span.textContent = lines.join("↵");
  span.classList.toggle("break", settled && lines.length > 1);
  span.classList.toggle("sign", isSign(run, id));
}

// A token in a table or a tip: never empty, never a line break, and a space before it can be seen.
function label(run, id) {
  const [text] = textsOf(run, [id]);
  return text.replace(/\n/g, "↵").replace(/^ +/, (spaces) => "␣".repeat(spaces.length)) || "∅";
}

class Draft {
  constructor(run, element, behind) {
    this.run = run;
    this.element = element;
    this.behind = behind;
    this.spans = Array.from({ length: run.length }, (_, position) => {
      const span = document.createElement("span");
      span.dataset.position = position;
      return span;
    });
    element.replaceChildren(...this.spans);
  }

  // Step 0 is the noise before the first step, of which no position says anything yet.
  show(block, number, chosen) {
    const step = number ? block.steps[number - 1] : null;
    const end = step ? endOf(this.run, step) : this.run.length;
    const texts = step ? textsOf(this.run, step.ids) : null;
    this.spans.forEach((span, p) => {
      span.hidden = p > end;
      if (p > end) return;
      const entropy = step ? step.entropies[p] : HIGHEST;
      span.className = step ? statusOf(block, number, p) : "";
      if (step) showToken(this.run, span, step.ids[p], texts[p], entropy < 0.1);
      else span.textContent = " ··";
      span.classList.toggle("chosen", p === chosen);
      paint(span, entropyShade(entropy));
    });
    const left = this.run.length - end - 1;
    this.behind.textContent = left > 0 ? `${left} more position${left > 1 ? "s" : ""} after the end` : "";
  }
}
