// Two runs under one scrubber. Both show the draft after the same number of steps; the one that needed fewer stays at its
// last.

class Side {
  constructor(run, letter) {
    this.run = run;
    this.letter = letter;
    this.draft = new Draft(run, byId(`draft-${letter}`), byId(`behind-${letter}`));
  }

  block(index) {
    return index < this.run.blocks.length ? this.run.blocks[index] : null;
  }

  step(index, step) {
    const block = this.block(index);
    return block ? Math.min(block.count, step) : 0;
  }

  show(index, step) {
    const block = this.block(index), line = byId(`reading-${this.letter}`);
    this.draft.element.hidden = !block;
    if (!block) {
      line.textContent = "has no such block";
      this.draft.behind.textContent = "";
      return;
    }
    const number = this.step(index, step);
    this.draft.show(block, number, null);
    const now = number ? block.steps[number - 1] : null;
    const settled = now ? now.entropies.reduce((sum, entropy) => sum + (entropy < 0.1), 0) : 0;
    line.textContent = now
      ? `step ${number} of ${block.count}${step > block.count ? ", finished" : ""} · ${settled}/${this.run.length} settled · ${nats(now.mean)} nats mean`
      : "noise, before the first step";
  }

  texts(index, step) {
    const block = this.block(index), number = this.step(index, step);
    return block && number ? textsOf(this.run, block.steps[number - 1].ids) : null;
  }
}

class DiffPage {
  constructor(a, b) {
    this.sides = [new Side(a, "a"), new Side(b, "b")];
    this.count = Math.max(a.blocks.length, b.blocks.length);
    this.block = 0;
    this.timer = null;
    this.touched = false;
    this.tip = new Tip(a, byId("tip"));
    this.choices = Array.from({ length: this.count }, (_, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("role", "radio");
      button.textContent = index + 1;
      button.addEventListener("click", () => this.go(index, 1));
      return button;
    });
    byId("picker").replaceChildren(...this.choices);
    byId("picker").hidden = this.count < 2;
    this.makeBars();
    this.step = Math.max(1, Math.round(this.most() * 0.4));
  }

  most(index = this.block) {
    return Math.max(...this.sides.map((side) => (side.block(index) ? side.block(index).count : 0)));
  }

  makeBars() {
    const highest = Math.max(...this.choices.map((_, index) => this.most(index)));
    this.bars = this.choices.map((_, index) => {
      const button = document.createElement("button"), two = document.createElement("span");
      const counts = document.createElement("span"), name = document.createElement("span");
      button.type = "button";
      two.className = "two";
      const steps = this.sides.map((side) => (side.block(index) ? side.block(index).count : 0));
      steps.forEach((count, side) => {
        const bar = document.createElement("i");
        bar.className = side ? "b" : "a";
        bar.style.height = `${(100 * count) / highest}%`;
        two.append(bar);
      });
      button.title = `block ${index + 1}: ${steps[0]} steps in A, ${steps[1]} in B`;
      button.setAttribute("aria-label", button.title);
      counts.textContent = steps[0] === steps[1] ? steps[0] : `${steps[0]} ${steps[1]}`;
      name.textContent = index + 1;
      button.append(counts, two, name);
      button.addEventListener("click", () => this.go(index, this.most(index)));
      return button;
    });
    byId("bars").replaceChildren(...this.bars);
  }

  go(block, step, { byHand = true } = {}) {
    if (byHand) {
      this.pause();
      this.touched = true;
    }
    this.block = Math.min(this.count - 1, Math.max(0, block));
    this.step = Math.min(this.most(), Math.max(0, step));
    this.show();
  }

  forward() {
    if (this.step < this.most()) this.go(this.block, this.step + 1);
    else if (this.block < this.count - 1) this.go(this.block + 1, 0);
  }

  back() {
    if (this.step > 0) this.go(this.block, this.step - 1);
    else if (this.block > 0) this.go(this.block - 1, this.most(this.block - 1));
  }

  get isAtEnd() {
    return this.block === this.count - 1 && this.step === this.most();
  }

  play() {
    if (this.timer !== null) return this.pause();
    if (!this.touched || this.isAtEnd) this.go(0, 0, { byHand: false });
    this.touched = true;
    byId("play").textContent = "Pause";
    this.wait();
    return undefined;
  }

  wait() {
    this.timer = setTimeout(() => {
      if (this.isAtEnd) return this.pause();
      if (this.step < this.most()) this.go(this.block, this.step + 1, { byHand: false });
      else this.go(this.block + 1, 0, { byHand: false });
      return this.wait();
    }, 1000 / Number(byId("speed").value));
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    byId("play").textContent = "Play";
  }

  show() {
    for (const side of this.sides) side.show(this.block, this.step);
    this.markDifferences();
    this.showCurve();
    this.choices.forEach((button, index) => {
      button.setAttribute("aria-checked", index === this.block);
      button.tabIndex = index === this.block ? 0 : -1;
    });
    this.bars.forEach((button, index) => button.setAttribute("aria-pressed", index === this.block));
    const scrubber = byId("scrubber");
    scrubber.max = this.most();
    scrubber.value = this.step;
    scrubber.setAttribute("aria-valuetext", `step ${this.step} of ${this.most()}, block ${this.block + 1}`);
    byId("place").textContent = `step ${this.step} of ${this.most()}`;
  }

  // Positions are compared as they stand: both canvases begin at their own place in the text.
  markDifferences() {
    const [a, b] = this.sides.map((side) => side.texts(this.block, this.step));
    for (const side of this.sides)
      side.draft.spans.forEach((span, p) => span.classList.toggle("differs", Boolean(a && b) && a[p] !== b[p]));
  }

  showCurve() {
    const element = byId("curve"), parts = [], left = 40, right = 8, bottom = 22;
    const width = element.clientWidth || 500, height = element.clientHeight || 200;
    const blocks = this.sides.map((side) => side.block(this.block));
    const most = Math.max(2, this.most());
    const all = blocks.flatMap((block) => (block ? block.means : []));
    const low = Math.min(0.001, this.sides[0].run.confidence / 2), high = Math.max(1, ...all) * 1.3;
    const x = (step) => left + ((step - 1) / (most - 1)) * (width - left - right);
    const y = (mean) => (height - bottom) * (1 - Math.log(Math.max(mean, low) / low) / Math.log(high / low)) + 4;
    for (const mark of [0.001, 0.01, 0.1, 1, 10].filter((value) => value >= low && value <= high)) {
      parts.push(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(mark), y2: y(mark) }));
      parts.push(svg("text", { x: left - 7, y: y(mark) + 4, "text-anchor": "end" }, String(mark)));
    }
    blocks.forEach((block, index) => {
      if (!block) return;
      const letter = index ? "b" : "a", number = Math.min(block.count, this.step);
      const path = block.means.map((mean, s) => `${s ? "L" : "M"}${x(s + 1).toFixed(1)} ${y(mean).toFixed(1)}`).join("");
      parts.push(svg("path", { class: `curve-${letter}`, d: path }));
      if (number) parts.push(svg("circle", { class: `dot-${letter}`, cx: x(number), cy: y(block.means[number - 1]), r: 5 }));
    });
    parts.push(svg("text", { x: left, y: height - 4 }, "step 1"));
    parts.push(svg("text", { x: width - right, y: height - 4, "text-anchor": "end" }, String(most)));
    element.setAttribute("viewBox", `0 0 ${width} ${height}`);
    element.replaceChildren(...parts);
  }

  recolour() {
    drawRamp(byId("ramp"), entropyRamp());
    this.show();
  }
}

function listen(page) {
  byId("play").addEventListener("click", () => page.play());
  byId("back").addEventListener("click", () => page.back());
  byId("forward").addEventListener("click", () => page.forward());
  byId("scrubber").addEventListener("input", (event) => page.go(page.block, Number(event.target.value)));
  byId("heat").addEventListener("change", (event) => { heat = event.target.checked; page.recolour(); });
  for (const side of page.sides) {
    const { element } = side.draft;
    element.addEventListener("pointerover", (event) => {
      if (!event.target.dataset.position) return;
      page.tip.run = side.run;
      const number = side.step(page.block, page.step);
      page.tip.show(side.block(page.block), number, Number(event.target.dataset.position), event.target);
    });
    element.addEventListener("pointerleave", () => page.tip.hide());
  }
  document.addEventListener("keydown", (event) => {
    if (keyIsTaken(event)) return;
    const keys = {
      " ": () => page.play(),
      ArrowRight: () => page.forward(),
      ArrowLeft: () => page.back(),
      ArrowDown: () => page.go(page.block + 1, page.block + 1 < page.count ? 1 : page.step),
      ArrowUp: () => page.go(page.block - 1, page.block > 0 ? 1 : page.step),
      Home: () => page.go(page.block, 0),
      End: () => page.go(page.block, page.most()),
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
  window.addEventListener("resize", () => page.show());
}

begin(async () => {
  const runs = [await readRun("-a"), await readRun("-b")];
  if (!runs.every((run) => run.blocks.length)) return;
  for (const part of document.querySelectorAll(".needs-script, .looks")) part.hidden = false;
  const page = new DiffPage(...runs);
  for (const letter of ["a", "b"]) byId(`name-${letter}`).textContent = byId(`head-${letter}`).dataset.name;
  listen(page);
  followTheme(() => page.recolour());
});
