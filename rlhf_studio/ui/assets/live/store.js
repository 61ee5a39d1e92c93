// The page's copy of a run's metrics: one ascending list of (step, value) per series, as the feed sends them.

export class SeriesStore {
  constructor() {
    this.reset();
  }

  /** Hold nothing, of another run. */
  reset() {
    this.clear();
    this.directions = {}; // where the doctor says that a series has gone: 1, 0 or -1
  }

  clear() {
    this.series = new Map();
    this.lastStep = -1;
    this.points = 0;
    this.over = {};
    this.first = {};
  }

  /**
   * Take in the `series` of a reply; `full` replaces everything. Of a run that has ended, `over` are the means of the
   * last tenth of its steps, and `first` its values in the first one.
   */
  apply(payload, full, lastStep, over = {}, first = {}) {
    if (full) this.clear();
    this.over = over;
    this.first = first;
    payload.names.forEach((name, index) => {
      const xs = payload.x[payload.at[index]];
      const ys = payload.y[index];
      const held = this.series.get(name) || { x: [], y: [] };
      for (let i = 0; i < xs.length; i += 1) {
        if (ys[i] === null && held.x.length === 0) continue;
        held.x.push(xs[i]);
        held.y.push(ys[i]);
      }
      this.series.set(name, held);
      this.points = Math.max(this.points, held.x.length);
    });
    this.lastStep = lastStep;
  }

  names() {
    return [...this.series.keys()];
  }

  get(name) {
    return this.series.get(name) || { x: [], y: [] };
  }

  has(name) {
    return this.get(name).y.some((value) => value !== null);
  }

  /** The newest finite value, or null. */
  last(name) {
    const { y } = this.get(name);
    for (let i = y.length - 1; i >= 0; i -= 1) if (y[i] !== null) return y[i];
    return null;
  }

  /** What is shown of a series as a whole: of a run that has ended its last tenth's mean, else the newest value. */
  now(name) {
    return this.over[name] ?? this.last(name);
  }

  /** The largest size of a value; 0 without any. */
  largest(name) {
    return this.get(name).y.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  }

  /** The newest `count` finite values. */
  tail(name, count) {
    return this.get(name)
      .y.filter((value) => value !== null)
      .slice(-count);
  }

  /** Value at a step, or at the nearest held step before it. */
  at(name, step) {
    const { x, y } = this.get(name);
    const index = before(x, step);
    return index < 0 ? null : y[index];
  }

  /** The held step nearest to `step`; null when there is none. */
  nearestStep(name, step) {
    const { x } = this.get(name);
    if (!x.length) return null;
    const index = Math.max(0, before(x, step));
    const next = x[index + 1];
    return next !== undefined && Math.abs(next - step) < Math.abs(x[index] - step) ? next : x[index];
  }

  /** x values of a series on the chosen axis: "step", "episode" or "time" (minutes). Interpolated where thinned. */
  axis(name, mode) {
    const { x } = this.get(name);
    return mode === "step" ? x : x.map((step) => this.toAxis(step, mode));
  }

  toAxis(step, mode) {
    if (mode === "step") return step;
    const { x, y } = this.get(mode === "episode" ? "episode" : "time/elapsed");
    const value = interpolate(x, y, step);
    return mode === "time" && value !== null ? value / 60 : value;
  }

  fromAxis(value, mode) {
    if (mode === "step") return value;
    const { x, y } = this.get(mode === "episode" ? "episode" : "time/elapsed");
    return interpolate(y, x, mode === "time" ? 60 * value : value);
  }
}

/** Index of the last entry that is <= value, -1 when there is none. */
function before(list, value) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function interpolate(x, y, at) {
  if (!x.length) return null;
  const index = Math.max(0, Math.min(before(x, at), x.length - 2));
  if (x.length === 1 || x[index + 1] === x[index]) return y[index];
  const share = (at - x[index]) / (x[index + 1] - x[index]);
  return y[index] + share * (y[index + 1] - y[index]);
}

/**
 * Exponential moving average, divided by the sum of its weights so that the first values are not drawn towards 0.
 * Weight 0 returns the values; towards 1 it smooths more.
 */
export function smooth(values, weight) {
  let [sum, norm] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}
