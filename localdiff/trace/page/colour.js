// Entropy and steps as colours. The blue and amber ramps rise in lightness alone, so every eye can read them; red to green
// is there because many expect it, and is off unless asked for.

const RAMPS = {
  light: {
    entropy: ["#ffffff", "#e6effa", "#bcd6f2", "#7fb0e4", "#2f6fb8"],
    heat: ["#bfe3c4", "#e3eab0", "#f8e08e", "#f5ae7c", "#ea7a72"],
    lock: ["#fffaeb", "#fbe3ac", "#f0b653", "#cf7f1d", "#8f4a08"],
    ink: "#1c2127",
  },
  dark: {
    entropy: ["#1a1e23", "#1c2f48", "#204a78", "#2f74bb", "#86c0fa"],
    heat: ["#1f5a31", "#4d6327", "#7d6a1f", "#97521f", "#a83a36"],
    lock: ["#24221c", "#4a3a17", "#7d5a16", "#b98620", "#f5c65a"],
    ink: "#e4e7ea",
  },
};
const LOWEST = 0.005, HIGHEST = 8;

let theme = "light", heat = false;

// 0 for a certain position to 1 for noise, on a logarithmic scale from 0.005 to 8 nats, as in the terminal.
function level(entropy) {
  if (entropy <= LOWEST) return 0;
  return Math.min(1, Math.log(entropy / LOWEST) / Math.log(HIGHEST / LOWEST));
}

function ramp(stops, share) {
  const place = Math.min(1, Math.max(0, share)) * (stops.length - 1);
  const index = Math.min(stops.length - 2, Math.floor(place)), part = place - index;
  return [1, 3, 5].map((i) => {
    const from = parseInt(stops[index].slice(i, i + 2), 16), to = parseInt(stops[index + 1].slice(i, i + 2), 16);
    return Math.round(from + (to - from) * part);
  });
}

function luminance(rgb) {
  const [r, g, b] = rgb.map((v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// The ink for a ground: the page's own where it stands out well, else black or white, one of which always does.
function inkOn(rgb) {
  const ground = luminance(rgb);
  const contrast = (hex) => {
    const ink = luminance(ramp([hex, hex], 0));
    return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
  };
  const { ink } = RAMPS[theme];
  if (contrast(ink) >= 7) return ink;
  return contrast("#000000") >= contrast("#ffffff") ? "#000000" : "#ffffff";
}

// Colours of a ramp in so many shades, each with the ink that stands out on it; made once for each look.
const SHADES = 128;
const looks = new Map();

function shades(name) {
  const key = `${theme} ${name}`;
  if (!looks.has(key)) {
    const stops = RAMPS[theme][name];
    looks.set(key, Array.from({ length: SHADES }, (_, index) => {
      const rgb = ramp(stops, index / (SHADES - 1));
      return { rgb, ground: `rgb(${rgb.join(",")})`, ink: inkOn(rgb) };
    }));
  }
  return looks.get(key);
}

const entropyRamp = () => (heat ? "heat" : "entropy");
const entropyShade = (entropy) => shades(entropyRamp())[Math.round(level(entropy) * (SHADES - 1))];
const lockShade = (step, most) => shades("lock")[most > 1 ? Math.round(((step - 1) / (most - 1)) * (SHADES - 1)) : 0];

function paint(element, shade) {
  element.style.backgroundColor = shade.ground;
  element.style.color = shade.ink;
}

function drawRamp(canvas, name) {
  const context = canvas.getContext("2d");
  shades(name).forEach((shade, index) => {
    context.fillStyle = shade.ground;
    context.fillRect((index * canvas.width) / SHADES, 0, canvas.width / SHADES + 1, canvas.height);
  });
}
