// What a replay computes: between two steps, for its axes, and for its colours. Pure sums.

const ROOM = 0.08; // of a range, above and below its curves

/** A series at a place between two of its points; null where it is not known. */
export function valueAt(series, place) {
  const [before, share] = [Math.floor(place), place % 1];
  const [from, to] = [series[before], series[Math.min(series.length - 1, before + 1)]];
  return Number.isFinite(from) && Number.isFinite(to) ? from + (to - from) * share : (from ?? null);
}

/** The place of the step that is reached: what is written as a number is this step's own. */
export const reachedAt = (place) => Math.floor(place + 1e-6);

/** The value on record at the step that is reached; null where it is not known. */
export const recordedAt = (series, place) => series[reachedAt(place)] ?? null;

/**
 * The range that holds all numbers of some series, with room above and below.
 * @returns {[number, number]}
 */
export function rangeOf(many) {
  const known = many.flat().filter(Number.isFinite);
  if (!known.length) return [0, 1];
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const room = ROOM * (high - low || Math.abs(high) || 1);
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

/** How strong the colour of a value is, 0 to 100: by the square root, as everywhere, and as the legend's marks. */
export const strengthOf = (value, { centre, limit }) =>
  Number.isFinite(value) && limit > 0
    ? Math.round(1000 * Math.sqrt(Math.min(1, Math.abs(value - centre) / limit))) / 10
    : 0;

/** The place of the token that ended an answer; -1 where none did, or it is not shown. */
export const endOf = ({ tokens, stopped, left_out: more }) => (stopped && !more ? tokens.length - 1 : -1);

/** The frame that holds at a step: the newest one that is not after it; the first one before that. */
export const frameAt = (frames, step) => frames.findLast((frame) => frame.step <= step) || frames[0];

/** The frame after this one, where steps are shown between the two: until then the answer stands still. */
export function nextOf(frames, frame, steps) {
  const next = frames[frames.indexOf(frame) + 1];
  return next && steps.some((step) => step > Math.max(frame.step, steps[0]) && step < next.step) ? next : null;
}
