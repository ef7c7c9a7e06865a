// From the blob of `data.py` back to arrays. Everything here is numbers; text comes in only as `pieces`.

async function inflate(base64) {
  const packed = Uint8Array.from(atob(base64.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// A run in memory: `blocks` with steps, and for each step typed arrays of one entry a position. A page of two runs tells
// their elements apart by a suffix.
async function readRun(suffix) {
  const figures = JSON.parse(document.getElementById(`figures${suffix}`).textContent);
  const bytes = await inflate(document.getElementById(`blob${suffix}`).textContent);
  const { length, width, recordTopK } = figures;
  const steps = figures.blocks.reduce((sum, block) => sum + block.steps, 0);
  const count = steps * length;
  let at = 0;
  const planes = (size, number) => {
    const values = new Uint32Array(number);
    for (let byte = 0; byte < size; byte++)
      for (let i = 0; i < number; i++) values[i] |= bytes[at++] << (8 * byte);
    return values;
  };
  const ids = planes(width, count);
  const entropies = Float32Array.from(planes(2, count), half);
  const probs = Float32Array.from(planes(2, count), (v) => v / 0xffff);
  const row = Math.ceil(length / 8);
  const flags = bytes.subarray(at, at + steps * row);
  at += steps * row;
  const topIds = recordTopK ? planes(width, count * recordTopK) : null;
  const topProbs = recordTopK ? Float32Array.from(planes(2, count * recordTopK), (v) => v / 0xffff) : null;
  if (at !== bytes.length) throw new Error("the page's data has another size than it says");

  let first = 0;
  const blocks = figures.blocks.map((block, index) => {
    const list = [];
    for (let s = 0; s < block.steps; s++, first++) {
      const from = first * length;
      const draft = ids.subarray(from, from + length);
      if (s) for (let p = 0; p < length; p++) draft[p] ^= list[s - 1].ids[p];
      const accepted = new Uint8Array(length);
      for (let p = 0; p < length; p++) accepted[p] = (flags[first * row + (p >> 3)] >> (p & 7)) & 1;
      list.push({
        ids: draft,
        entropies: entropies.subarray(from, from + length),
        probs: probs.subarray(from, from + length),
        accepted,
        topIds: topIds && topIds.subarray(from * recordTopK, (from + length) * recordTopK),
        topProbs: topProbs && topProbs.subarray(from * recordTopK, (from + length) * recordTopK),
        mean: block.means[s],
        temperature: block.temperatures[s],
        seconds: block.times[s],
      });
    }
    return { ...block, number: index + 1, count: block.steps, steps: list, ...lockIns(list, length) };
  });
  return { ...figures, blocks: blocks.filter((block) => block.count) };
}

// For every position the step in which it was first accepted (0: never) and in which its draft changed last.
function lockIns(steps, length) {
  const firstAccepted = new Uint16Array(length);
  const lastChanged = new Uint16Array(length).fill(1);
  steps.forEach((step, s) => {
    for (let p = 0; p < length; p++) {
      if (step.accepted[p] && !firstAccepted[p]) firstAccepted[p] = s + 1;
      if (s && step.ids[p] !== steps[s - 1].ids[p]) lastChanged[p] = s + 1;
    }
  });
  return { firstAccepted, lastChanged };
}

function half(bits) {
  const exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return fraction * 2 ** -24;
  return (1 + fraction / 1024) * 2 ** (exponent - 15);
}

const STATUS = { newly: "accepted now", kept: "accepted", unaccepted: "back to noise", open: "not accepted", behind: "after the end" };

function statusOf(block, step, position) {
  const now = block.steps[step - 1].accepted[position];
  const before = step > 1 && block.steps[step - 2].accepted[position];
  if (now) return before ? "kept" : "newly";
  return before ? "unaccepted" : "open";
}

// Position of the first end token about which the model is at least leaning (under 1 nat), or the length.
function endOf(run, step) {
  for (let p = 0; p < run.length; p++)
    if (step.entropies[p] < 1 && run.ends.includes(step.ids[p])) return p;
  return run.length;
}
