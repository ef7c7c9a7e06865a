// What is chosen on the page of a run, and who shows it: beside block and step a position.

class Page extends Scrubber {
  constructor(run) {
    super(run.blocks.length);
    this.run = run;
    this.chosen = null;
    this.draft = new Draft(run, byId("draft"), byId("behind"));
    this.positions = new Positions(run, byId("positions"), (position) => this.choose(position));
    this.curve = new Curve(run, byId("curve"), (step) => this.go(this.block, step));
    this.field = new Field(run, byId("field"), (step, position) => { this.chosen = position; this.go(this.block, step); });
    this.bars = new Bars(run, byId("bars"), (block) => this.go(block, run.blocks[block].count));
    this.locked = new Locked(run, byId("locked"), byId("lock-last"), (block, step, position) => {
      this.chosen = position;
      this.go(block, step);
      byId("steps").scrollIntoView({ block: "start" });
    });
    this.tip = new Tip(run, byId("tip"));
    this.choices.forEach((button, index) => { button.title = `block ${index + 1}: ${this.most(index)} steps`; });
    this.open();
    this.readPlace();
  }

  get current() {
    return this.run.blocks[this.block];
  }

  most(index = this.block) {
    return this.run.blocks[index].count;
  }

  // A place can be linked to: `#b2s5` is step 5 of block 2.
  readPlace() {
    const found = /^#b(\d+)s(\d+)$/.exec(location.hash);
    if (!found) return;
    this.touched = true;
    this.block = Math.min(this.count, Math.max(1, Number(found[1]))) - 1;
    this.step = Math.min(this.most(), Number(found[2]));
  }

  go(block, step, { byHand = true } = {}) {
    const follows = byHand && this.chosen !== null && !this.tip.element.hidden;
    super.go(block, step, { byHand });
    if (byHand) history.replaceState(null, "", `#b${this.block + 1}s${this.step}`);
    if (follows) this.showTip(this.draft.spans[this.chosen]);
  }

  choose(position) {
    this.chosen = this.chosen === position ? null : position;
    this.show();
    if (this.chosen !== null) {
      this.positions.reveal(this.chosen);
      this.showTip(this.draft.spans[this.chosen]);
    }
  }

  move(by) {
    const next = this.chosen === null ? 0 : this.chosen + by;
    this.chosen = null;
    this.choose(Math.min(this.run.length - 1, Math.max(0, next)));
  }

  release() {
    this.chosen = null;
    this.tip.hide();
    this.show();
  }

  showTip(span) {
    if (span.hidden) this.tip.hide();  // after the end there is nothing to point at
    else this.tip.show(this.current, this.step, Number(span.dataset.position), span);
  }

  // At the speed of the run itself, if that is chosen.
  get interval() {
    const { steps, count } = this.current;
    const next = steps[this.step] || steps[count - 1];
    return byId("speed").value === "0" ? Math.max(16, 1000 * next.seconds) : super.interval;
  }

  faster(by) {
    const select = byId("speed");
    select.selectedIndex = Math.min(select.options.length - 1, Math.max(0, select.selectedIndex + by));
  }

  show() {
    const { current, step, chosen } = this;
    this.draft.show(current, step, chosen);
    this.positions.show(current, step, chosen);
    this.curve.show(current, step);
    this.field.show(current, step, chosen);
    this.bars.show(this.block);
    this.showPlace();
    this.showReading();
  }

  showReading() {
    const { current, step: number } = this, line = byId("reading");
    if (!number) {
      line.textContent = `block ${current.number}: noise, before the first step`;
      return;
    }
    const step = current.steps[number - 1], counts = { newly: 0, kept: 0, unaccepted: 0, open: 0 };
    let settled = 0;
    for (let p = 0; p < this.run.length; p++) {
      counts[statusOf(current, number, p)]++;
      if (step.entropies[p] < 0.1) settled++;
    }
    const parts = [
      [`${settled}/${this.run.length}`, " settled"],
      [counts.newly, " newly accepted"],
      [counts.unaccepted, " back to noise"],
      [counts.open, " not accepted"],
      [nats(step.mean), " nats mean"],
      [step.temperature.toFixed(2), " temperature"],
    ];
    line.replaceChildren();
    parts.forEach(([figure, word], index) => {
      const bold = document.createElement("b");
      bold.textContent = figure;
      line.append(index ? " · " : "", bold, word);
    });
  }

  recolour() {
    drawRamp(byId("ramp"), entropyRamp());
    drawRamp(byId("lock-ramp"), "lock");
    this.locked.show(document.querySelector('input[name="lock"]:checked').value);
    this.show();
  }

  keys() {
    return {
      ...super.keys(),
      "+": () => this.faster(1),
      "=": () => this.faster(1),
      "-": () => this.faster(-1),
      j: () => this.move(1),
      k: () => this.move(-1),
      Escape: () => this.release(),
    };
  }

  listen() {
    super.listen();
    for (const radio of document.querySelectorAll('input[name="lock"]'))
      radio.addEventListener("change", () => this.locked.show(radio.value));
    const draft = byId("draft"), locked = byId("locked");
    draft.addEventListener("pointerover", (event) => { if (event.target.dataset.position) this.showTip(event.target); });
    draft.addEventListener("pointerleave", () => this.tip.hide());
    draft.addEventListener("click", (event) => { if (event.target.dataset.position) this.choose(Number(event.target.dataset.position)); });
    locked.addEventListener("pointerover", (event) => {
      const token = this.locked.tokenOf(event.target);
      if (token) this.tip.show(token.block, token.block.count, token.position, event.target);
    });
    locked.addEventListener("pointerleave", () => this.tip.hide());
    window.addEventListener("hashchange", () => { this.readPlace(); this.show(); });
  }
}

begin(async () => {
  const run = await readRun("");
  if (!run.blocks.length) return;
  for (const part of document.querySelectorAll(".needs-script, .looks")) part.hidden = false;
  const page = new Page(run);
  page.listen();
  followTheme(() => page.recolour());
});
