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

class DiffPage extends Scrubber {
  constructor(a, b) {
    super(Math.max(a.blocks.length, b.blocks.length));
    this.sides = [new Side(a, "a"), new Side(b, "b")];
    this.tip = new Tip(a, byId("tip"));
    this.makeBars();
    this.open();
  }

  most(index = this.block) {
    return Math.max(...this.sides.map((side) => (side.block(index) ? side.block(index).count : 0)));
  }

  makeBars() {
    const highest = Math.max(...this.choices.map((_, index) => this.most(index)));
    this.bars = this.choices.map((_, index) => {
      const steps = this.sides.map((side) => (side.block(index) ? side.block(index).count : 0));
      const title = `block ${index + 1}: ${steps[0]} steps in A, ${steps[1]} in B`;
      return blockButton(index + 1, steps, highest, title, () => this.go(index, this.most(index)));
    });
    byId("bars").replaceChildren(...this.bars);
  }

  show() {
    for (const side of this.sides) side.show(this.block, this.step);
    this.markDifferences();
    this.showCurve();
    this.showPlace();
    this.bars.forEach((button, index) => button.setAttribute("aria-pressed", index === this.block));
  }

  // Positions are compared as they stand: both canvases begin at their own place in the text.
  markDifferences() {
    const [a, b] = this.sides.map((side) => side.texts(this.block, this.step));
    for (const side of this.sides)
      side.draft.spans.forEach((span, p) => span.classList.toggle("differs", Boolean(a && b) && a[p] !== b[p]));
  }

  showCurve() {
    const blocks = this.sides.map((side) => side.block(this.block));
    const highest = Math.max(1, ...blocks.flatMap((block) => (block ? block.means : [])));
    const low = Math.min(0.001, this.sides[0].run.confidence / 2);
    const plane = new Plane(byId("curve"), Math.max(2, this.most()), low, highest * 1.3);
    blocks.forEach((block, index) => {
      if (!block) return;
      const letter = index ? "b" : "a", number = Math.min(block.count, this.step);
      plane.curve(`curve-${letter}`, block.means);
      if (number) plane.dot(`dot-${letter}`, number, block.means[number - 1]);
    });
    for (const step of [1, plane.most]) plane.label(step);
    plane.draw();
  }

  recolour() {
    drawRamp(byId("ramp"), entropyRamp());
    this.show();
  }

  listen() {
    super.listen();
    for (const side of this.sides) {
      const { element } = side.draft;
      element.addEventListener("pointerover", (event) => {
        if (!event.target.dataset.position) return;
        this.tip.run = side.run;
        const number = side.step(this.block, this.step);
        this.tip.show(side.block(this.block), number, Number(event.target.dataset.position), event.target);
      });
      element.addEventListener("pointerleave", () => this.tip.hide());
    }
  }
}

begin(async () => {
  const runs = [await readRun("-a"), await readRun("-b")];
  if (!runs.every((run) => run.blocks.length)) return;
  for (const part of document.querySelectorAll(".needs-script, .looks")) part.hidden = false;
  const page = new DiffPage(...runs);
  for (const letter of ["a", "b"]) byId(`name-${letter}`).textContent = byId(`head-${letter}`).dataset.name;
  page.listen();
  followTheme(() => page.recolour());
});
