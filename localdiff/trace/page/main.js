// What is chosen, how it is changed, and who shows it. State is three numbers: block, step and position.

class Page {
  constructor(run) {
    this.run = run;
    this.block = 0;
    this.chosen = null;
    this.timer = null;
    this.touched = false;
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
    this.makePicker();
    this.step = Math.max(1, Math.round(this.current.count * 0.4));
    this.readPlace();
  }

  get current() {
    return this.run.blocks[this.block];
  }

  makePicker() {
    this.choices = this.run.blocks.map((block, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("role", "radio");
      button.textContent = block.number;
      button.title = `block ${block.number}: ${block.count} steps`;
      button.addEventListener("click", () => this.go(index, 1));
      return button;
    });
    byId("picker").replaceChildren(...this.choices);
    byId("picker").hidden = this.choices.length < 2;
  }

  // A place can be linked to: `#b2s5` is step 5 of block 2.
  readPlace() {
    const found = /^#b(\d+)s(\d+)$/.exec(location.hash);
    if (!found) return;
    this.touched = true;
    this.block = Math.min(this.run.blocks.length, Math.max(1, Number(found[1]))) - 1;
    this.step = Math.min(this.current.count, Number(found[2]));
  }

  go(block, step, { byHand = true } = {}) {
    if (byHand) {
      this.pause();
      this.touched = true;
    }
    this.block = Math.min(this.run.blocks.length - 1, Math.max(0, block));
    this.step = Math.min(this.current.count, Math.max(0, step));
    this.show();
    if (byHand) history.replaceState(null, "", `#b${this.block + 1}s${this.step}`);
  }

  forward() {
    if (this.step < this.current.count) this.go(this.block, this.step + 1);
    else if (this.block < this.run.blocks.length - 1) this.go(this.block + 1, 0);
  }

  back() {
    if (this.step > 0) this.go(this.block, this.step - 1);
    else if (this.block > 0) this.go(this.block - 1, this.run.blocks[this.block - 1].count);
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
    if (!span.hidden) this.tip.show(this.current, this.step, Number(span.dataset.position), span);
  }

  get isAtEnd() {
    return this.block === this.run.blocks.length - 1 && this.step === this.current.count;
  }

  play() {
    if (this.timer !== null) return this.pause();
    // Whoever has not chosen a place yet wants to see it from the start.
    if (!this.touched || this.isAtEnd) this.go(0, 0, { byHand: false });
    this.touched = true;
    this.tip.hide();
    this.wait();
    return undefined;
  }

  wait() {
    byId("play").textContent = "Pause";
    const rate = Number(byId("speed").value);
    const next = this.current.steps[this.step] || this.current.steps[this.current.count - 1];
    this.timer = setTimeout(() => this.tick(), rate ? 1000 / rate : Math.max(16, 1000 * next.seconds));
  }

  tick() {
    if (this.isAtEnd) return this.pause();
    if (this.step < this.current.count) this.go(this.block, this.step + 1, { byHand: false });
    else this.go(this.block + 1, 0, { byHand: false });
    return this.wait();
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    byId("play").textContent = "Play";
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
    this.choices.forEach((button, index) => {
      button.setAttribute("aria-checked", index === this.block);
      button.tabIndex = index === this.block ? 0 : -1;
    });
    const scrubber = byId("scrubber");
    scrubber.max = current.count;
    scrubber.value = step;
    scrubber.setAttribute("aria-valuetext", `step ${step} of ${current.count}, block ${current.number}`);
    byId("place").textContent = `step ${step} of ${current.count}`;
    this.showReading();
  }

  showReading() {
    const { current, step: number } = this, line = byId("reading");
    if (!number) {
      line.textContent = `block ${current.number}: noise, before the first step`;
      return;
    }
    const step = current.steps[number - 1], counts = { newly: 0, kept: 0, unaccepted: 0, renoised: 0 };
    const end = Math.min(this.run.length - 1, endOf(this.run, step));
    let settled = 0;
    for (let p = 0; p <= end; p++) {
      counts[statusOf(current, number, p)]++;
      if (step.entropies[p] < 0.1) settled++;
    }
    const parts = [
      [`${settled}/${end + 1}`, " settled"],
      [counts.newly, " newly accepted"],
      [counts.unaccepted, " un-accepted"],
      [counts.renoised, " re-noised"],
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
}

function listen(page) {
  byId("play").addEventListener("click", () => page.play());
  byId("back").addEventListener("click", () => page.back());
  byId("forward").addEventListener("click", () => page.forward());
  byId("scrubber").addEventListener("input", (event) => page.go(page.block, Number(event.target.value)));
  byId("heat").addEventListener("change", (event) => { heat = event.target.checked; page.recolour(); });
  for (const radio of document.querySelectorAll('input[name="lock"]'))
    radio.addEventListener("change", () => page.locked.show(radio.value));
  const draft = byId("draft");
  draft.addEventListener("pointerover", (event) => { if (event.target.dataset.position) page.showTip(event.target); });
  draft.addEventListener("pointerleave", () => page.tip.hide());
  draft.addEventListener("click", (event) => { if (event.target.dataset.position) page.choose(Number(event.target.dataset.position)); });
  const locked = byId("locked");
  locked.addEventListener("pointerover", (event) => {
    const token = page.locked.tokenOf(event.target);
    if (token) page.tip.show(token.block, token.block.count, token.position, event.target);
  });
  locked.addEventListener("pointerleave", () => page.tip.hide());
  document.addEventListener("keydown", (event) => onKey(page, event));
  window.addEventListener("resize", () => page.show());
  window.addEventListener("hashchange", () => { page.readPlace(); page.show(); });
}

function onKey(page, event) {
  if (keyIsTaken(event)) return;
  const keys = {
    " ": () => page.play(),
    ArrowRight: () => page.forward(),
    ArrowLeft: () => page.back(),
    ArrowDown: () => page.go(page.block + 1, page.block + 1 < page.run.blocks.length ? 1 : page.step),
    ArrowUp: () => page.go(page.block - 1, page.block > 0 ? 1 : page.step),
    Home: () => page.go(page.block, 0),
    End: () => page.go(page.block, page.current.count),
    "+": () => page.faster(1),
    "=": () => page.faster(1),
    "-": () => page.faster(-1),
    j: () => page.move(1),
    k: () => page.move(-1),
    Escape: () => page.release(),
  };
  if (!Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
}

begin(async () => {
  const run = await readRun("");
  if (!run.blocks.length) return;
  for (const part of document.querySelectorAll(".needs-script, .looks")) part.hidden = false;
  const page = new Page(run);
  listen(page);
  followTheme(() => page.recolour());
});
