// A place in a run, which is a block and a step; how it is moved and played, and its keys. What is shown there is for a page
// to say, and how many steps a block has: `show()` and `most(index)`.

class Scrubber {
  constructor(count) {
    this.count = count;
    this.block = 0;
    this.timer = null;
    this.touched = false;
    this.choices = Array.from({ length: count }, (_, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("role", "radio");
      button.textContent = index + 1;
      button.addEventListener("click", () => this.go(index, 1));
      return button;
    });
    byId("picker").replaceChildren(...this.choices);
    byId("picker").hidden = count < 2;
  }

  // Where a page opens: some way into the first block.
  open() {
    this.step = Math.max(1, Math.round(this.most() * 0.4));
  }

  go(block, step, { byHand = true } = {}) {
    if (byHand) {
      this.pause();
      this.touched = true;
    }
    this.block = Math.min(this.count - 1, Math.max(0, block));
    this.step = Math.min(this.most(), Math.max(0, step));
    this.tip.hide();
    this.show();
  }

  forward(how) {
    if (this.step < this.most()) this.go(this.block, this.step + 1, how);
    else if (this.block < this.count - 1) this.go(this.block + 1, 0, how);
  }

  back() {
    if (this.step > 0) this.go(this.block, this.step - 1);
    else if (this.block > 0) this.go(this.block - 1, this.most(this.block - 1));
  }

  get isAtEnd() {
    return this.block === this.count - 1 && this.step === this.most();
  }

  // Milliseconds until the next step.
  get interval() {
    return 1000 / Number(byId("speed").value);
  }

  play() {
    if (this.timer !== null) return this.pause();
    // Whoever has not chosen a place yet wants to see it from the start.
    if (!this.touched || this.isAtEnd) this.go(0, 0, { byHand: false });
    this.touched = true;
    byId("play").textContent = "Pause";
    this.wait();
    return undefined;
  }

  wait() {
    this.timer = setTimeout(() => {
      if (this.isAtEnd) return this.pause();
      this.forward({ byHand: false });
      return this.wait();
    }, this.interval);
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    byId("play").textContent = "Play";
  }

  showPlace() {
    this.choices.forEach((button, index) => {
      button.setAttribute("aria-checked", index === this.block);
      button.tabIndex = index === this.block ? 0 : -1;
    });
    const scrubber = byId("scrubber"), place = `step ${this.step} of ${this.most()}`;
    scrubber.max = this.most();
    scrubber.value = this.step;
    scrubber.setAttribute("aria-valuetext", `${place}, block ${this.block + 1}`);
    byId("place").textContent = place;
  }

  keys() {
    return {
      " ": () => this.play(),
      ArrowRight: () => this.forward(),
      ArrowLeft: () => this.back(),
      ArrowDown: () => this.go(this.block + 1, this.block + 1 < this.count ? 1 : this.step),
      ArrowUp: () => this.go(this.block - 1, this.block > 0 ? 1 : this.step),
      Home: () => this.go(this.block, 0),
      End: () => this.go(this.block, this.most()),
    };
  }

  listen() {
    byId("play").addEventListener("click", () => this.play());
    byId("back").addEventListener("click", () => this.back());
    byId("forward").addEventListener("click", () => this.forward());
    byId("scrubber").addEventListener("input", (event) => this.go(this.block, Number(event.target.value)));
    byId("heat").addEventListener("change", (event) => { heat = event.target.checked; this.recolour(); });
    document.addEventListener("keydown", (event) => {
      const keys = this.keys();
      if (keyIsTaken(event) || !Object.hasOwn(keys, event.key)) return;
      event.preventDefault();
      keys[event.key]();
    });
    window.addEventListener("resize", () => this.show());
  }
}
