// The positions of one step as rows, and one position in a box beside the pointer.

class Positions {
  constructor(run, table, choose) {
    this.run = run;
    const body = table.querySelector("tbody");
    this.rows = Array.from({ length: run.length }, (_, position) => {
      const row = document.createElement("tr");
      for (let cell = 0; cell < 5; cell++) row.append(document.createElement("td"));
      row.cells[0].textContent = position;
      row.addEventListener("click", () => choose(position));
      return row;
    });
    body.replaceChildren(...this.rows);
    this.scroller = table.parentElement;
  }

  show(block, number, chosen) {
    const step = number ? block.steps[number - 1] : null;
    const end = step ? endOf(this.run, step) : this.run.length;
    this.rows.forEach((row, p) => {
      const status = !step ? null : p > end ? "behind" : statusOf(block, number, p);
      const values = step
        ? [label(this.run, step.ids[p]), percent(step.probs[p]), nats(step.entropies[p]), STATUS[status]]
        : ["··", "", "", "noise"];
      values.forEach((value, cell) => {
        if (row.cells[cell + 1].textContent !== value) row.cells[cell + 1].textContent = value;
      });
      row.cells[4].className = status ? `is-${status}` : "";
      row.classList.toggle("chosen", p === chosen);
    });
  }

  reveal(position) {
    const row = this.rows[position];
    this.scroller.scrollTop = row.offsetTop - this.scroller.clientHeight / 2;
  }
}

const percent = (prob) => (prob > 0.9995 ? "100 %" : `${(100 * prob).toFixed(prob < 0.0995 ? 2 : 1)} %`);
const nats = (entropy) => (entropy === 0 ? "0" : entropy < 0.001 ? "<0.001" : entropy.toPrecision(entropy < 0.1 ? 2 : 3));

// Of the 64 that a trace may have; so many fit beside the token.
const MOST_PROBABLE = 8;

class Tip {
  constructor(run, element) {
    this.run = run;
    this.element = element;
  }

  hide() {
    this.element.hidden = true;
  }

  show(block, number, position, anchor) {
    this.element.replaceChildren(...this.content(block, number, position));
    this.element.hidden = false;
    const box = anchor.getBoundingClientRect(), tip = this.element.getBoundingClientRect();
    const edge = document.documentElement.clientWidth - tip.width - 8;
    const left = Math.max(8, Math.min(edge, box.left + box.width / 2 - tip.width / 2));
    const above = box.top - tip.height - 8;
    this.element.style.left = `${left + window.scrollX}px`;
    this.element.style.top = `${(above > 4 ? above : box.bottom + 8) + window.scrollY}px`;
  }

  content(block, number, position) {
    const { run } = this, step = number ? block.steps[number - 1] : null;
    const head = document.createElement("div"), name = document.createElement("strong"), list = document.createElement("dl");
    name.textContent = step ? label(run, step.ids[position]) : "noise";
    head.append(name);
    const rows = [["position", `${position} of block ${block.number}`]];
    if (step) {
      rows.push(["id", run.ids[step.ids[position]]]);
      rows.push(["confidence", percent(step.probs[position])]);
      rows.push(["entropy", `${nats(step.entropies[position])} nats`]);
      rows.push(["status", STATUS[statusOf(block, number, position)]]);
      const first = block.firstAccepted[position];
      rows.push(["first accepted", first ? `step ${first}` : "never"]);
      rows.push(["last changed", `step ${block.lastChanged[position]}`]);
    }
    for (const [term, value] of rows) {
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = term;
      dd.textContent = value;
      list.append(dt, dd);
    }
    return [head, list, ...this.mostProbable(step, position), ...this.past(block, position)];
  }

  mostProbable(step, position) {
    if (!step || !step.topIds) return [];
    const { recordTopK } = this.run, shares = [];
    for (let k = 0; k < Math.min(recordTopK, MOST_PROBABLE); k++) {
      const place = position * recordTopK + k;
      shares.push([label(this.run, step.topIds[place]), ` ${percent(step.topProbs[place])}`]);
    }
    return [codes("most probable: ", shares)];
  }

  // What the position held through the steps of its block.
  past(block, position) {
    const stretches = [];
    block.steps.forEach((step, s) => {
      const last = stretches[stretches.length - 1];
      if (last && last.id === step.ids[position]) last.to = s + 1;
      else stretches.push({ id: step.ids[position], from: s + 1, to: s + 1 });
    });
    const shown = stretches.slice(-6).map(({ id, from, to }) => [label(this.run, id), from === to ? ` ${from}` : ` ${from}–${to}`]);
    return [codes(stretches.length > 6 ? "draft by step: … " : "draft by step: ", shown)];
  }
}

function codes(title, pairs) {
  const line = document.createElement("p");
  line.className = "past";
  line.append(title);
  pairs.forEach(([text, note], index) => {
    const code = document.createElement("code");
    code.textContent = text;
    line.append(index ? ", " : "", code, note);
  });
  return line;
}
