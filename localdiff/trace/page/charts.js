// Four pictures of a run: a curve for each block, a field for one, bars for all, and the tokens by the step they locked in.

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const LEFT = 40, RIGHT = 8, BOTTOM = 22;

// Where mean entropies are drawn: steps from left to right, nats upwards on a logarithmic scale.
class Plane {
  constructor(element, most, low, high) {
    this.element = element;
    this.most = most;
    this.low = low;
    this.high = high;
    this.width = element.clientWidth || 350;
    this.height = element.clientHeight || 200;
    this.parts = [];
    for (const mark of [0.001, 0.01, 0.1, 1, 10].filter((value) => value >= low && value <= high)) {
      this.line("grid", mark);
      this.add("text", { x: LEFT - 7, y: this.y(mark) + 4, "text-anchor": "end" }, String(mark));
    }
  }

  x(step) {
    return LEFT + ((step - 1) / (this.most - 1)) * (this.width - LEFT - RIGHT);
  }

  y(mean) {
    const share = Math.log(Math.max(mean, this.low) / this.low) / Math.log(this.high / this.low);
    return (this.height - BOTTOM) * (1 - share) + 4;
  }

  add(name, attributes, text) {
    this.parts.push(svg(name, attributes, text));
  }

  line(kind, mean) {
    this.add("line", { class: kind, x1: LEFT, x2: this.width - RIGHT, y1: this.y(mean), y2: this.y(mean) });
  }

  curve(kind, means) {
    const d = means.map((mean, s) => `${s ? "L" : "M"}${this.x(s + 1).toFixed(1)} ${this.y(mean).toFixed(1)}`).join("");
    this.add("path", { class: kind, d });
  }

  dot(kind, step, mean) {
    this.add("circle", { class: kind, cx: this.x(step), cy: this.y(mean), r: 5 });
  }

  label(step) {
    const x = this.x(step), anchor = step === 1 ? "start" : step === this.most ? "end" : "middle";
    if (anchor === "middle" && (x < LEFT + 50 || x > this.width - RIGHT - 30)) return;  // it would be over one of those
    this.add("text", { x, y: this.height - 4, "text-anchor": anchor }, step === 1 ? "step 1" : String(step));
  }

  draw() {
    this.element.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.element.replaceChildren(...this.parts);
  }
}

class Curve {
  constructor(run, element, jump) {
    this.run = run;
    this.element = element;
    element.addEventListener("click", (event) => {
      const box = element.getBoundingClientRect();
      const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
      jump(Math.round(1 + share * (this.most - 1)));
    });
    this.most = Math.max(2, ...run.blocks.map((block) => block.count));
    this.top = Math.max(1, ...run.blocks.map((block) => Math.max(...block.means)));
  }

  show(block, number) {
    const limit = this.run.confidence, low = Math.min(0.001, limit / 2), high = this.top * 1.3;
    const plane = new Plane(this.element, this.most, low, high);
    if (limit > low && limit < high) {
      plane.line("limit", limit);
      plane.add("text", { x: LEFT + 4, y: plane.y(limit) - 5 }, `may stop below ${limit} nats`);
    }
    for (const other of this.run.blocks) if (other !== block) plane.curve("other", other.means);
    plane.curve("this", block.means);
    if (number) plane.dot("now", number, block.means[number - 1]);
    for (const step of new Set([1, block.count, this.most])) plane.label(step);
    plane.draw();
  }
}

class Field {
  constructor(run, canvas, jump) {
    this.run = run;
    this.canvas = canvas;
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      const position = Math.floor(((event.clientX - box.left) / box.width) * run.length);
      jump(1 + Math.floor(((event.clientY - box.top) / box.height) * this.block.count), Math.min(run.length - 1, position));
    });
  }

  show(block, number, chosen) {
    this.block = block;
    const { canvas, run } = this;
    const scale = window.devicePixelRatio || 1;
    const width = (canvas.width = Math.round((canvas.clientWidth || 350) * scale));
    const height = (canvas.height = Math.round((canvas.clientHeight || 190) * scale));
    const context = canvas.getContext("2d");
    const column = width / run.length, row = height / block.count;
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture(block), 0, 0, width, height);
    const style = getComputedStyle(canvas);
    context.strokeStyle = style.color;
    context.lineWidth = 1.5 * scale;
    if (number) context.strokeRect(1, (number - 1) * row + 1, width - 2, Math.max(2, row - 2));
    if (chosen !== null) context.strokeRect(chosen * column - 1, 1, column + 2, height - 2);
  }

  // The block in one pixel for each position and step; drawn once for each look.
  picture(block) {
    const look = `${theme} ${entropyRamp()} ${block.number}`;
    if (this.look === look) return this.small;
    const { length } = this.run, small = document.createElement("canvas");
    small.width = length;
    small.height = block.count;
    const context = small.getContext("2d"), image = context.createImageData(length, block.count);
    block.steps.forEach((step, s) => {
      for (let p = 0; p < length; p++) {
        const [red, green, blue] = entropyShade(step.entropies[p]).rgb;
        image.data.set([red, green, blue, 255], 4 * (s * length + p));
      }
    });
    context.putImageData(image, 0, 0);
    this.look = look;
    this.small = small;
    return small;
  }
}

// A block as a button that leads to it: a bar for its steps in each run, as high as its share of the most.
function blockButton(number, counts, most, title, jump) {
  const [button, above, bars, name] = ["button", "span", "span", "span"].map((kind) => document.createElement(kind));
  button.type = "button";
  button.title = title;
  button.setAttribute("aria-label", title);
  above.textContent = [...new Set(counts)].join(" ");
  name.textContent = number;
  bars.className = "room";
  for (const count of counts) {
    const bar = document.createElement("i");
    bar.style.height = `${(100 * count) / most}%`;
    bars.append(bar);
  }
  button.append(above, bars, name);
  button.addEventListener("click", jump);
  return button;
}

class Bars {
  constructor(run, element, jump) {
    const most = Math.max(...run.blocks.map((block) => block.count));
    this.buttons = run.blocks.map((block, index) => {
      const ending = `${block.seconds.toFixed(2)} s, ${block.reason.replace("_", " ")}`;
      const title = `block ${block.number}: ${block.count} steps, ${ending}`;
      const button = blockButton(block.number, [block.count], most, title, () => jump(index));
      button.classList.toggle("limited", block.reason !== "converged");
      return button;
    });
    element.replaceChildren(...this.buttons);
  }

  show(chosen) {
    this.buttons.forEach((button, index) => button.setAttribute("aria-pressed", index === chosen));
  }
}

class Locked {
  constructor(run, element, last, jump) {
    this.run = run;
    this.tokens = [];
    this.most = Math.max(1, ...run.blocks.map((block) => block.count));
    last.textContent = `step ${this.most}`;
    const committed = run.blocks.filter((block) => block.final).map((block) => this.paragraph(block));
    element.replaceChildren(...(committed.length ? committed : ["nothing"]));
    element.addEventListener("click", (event) => {
      const token = this.tokenOf(event.target);
      if (token) jump(run.blocks.indexOf(token.block), this.stepOf(token), token.position);
    });
    this.kind = "accepted";
  }

  paragraph(block) {
    const ids = block.steps[block.count - 1].ids.subarray(0, block.final);
    const texts = textsOf(this.run, ids);
    const line = document.createElement("p");
    texts.forEach((text, position) => {
      const span = document.createElement("span");
      showToken(this.run, span, ids[position], text, true);
      span.dataset.token = this.tokens.length;
      this.tokens.push({ block, position, span });
      line.append(span);
    });
    return line;
  }

  tokenOf(target) {
    return target.dataset && target.dataset.token !== undefined ? this.tokens[Number(target.dataset.token)] : null;
  }

  // A token that was never accepted was taken in the last step all the same.
  stepOf({ block, position }) {
    return this.kind === "accepted" ? block.firstAccepted[position] || block.count : block.lastChanged[position];
  }

  show(kind) {
    this.kind = kind;
    for (const token of this.tokens) paint(token.span, lockShade(this.stepOf(token), this.most));
  }
}
