// Where the teacher points: a token of a response, or of a picture in a lesson. What shows tokens asks here.

class Pointing {
  constructor() {
    this.place = null; // {page, params}, as the teacher's address has it; null for nowhere
    this.listeners = new Set();
  }

  /** Call `action()` whenever the teacher points elsewhere. */
  onchange(action) {
    this.listeners.add(action);
  }

  set(place) {
    this.place = place;
    for (const action of this.listeners) action();
  }

  /** The token of this response that the teacher points at; null for none. */
  tokenOf(run, { step, sample }) {
    const { page, params } = this.place || {};
    const same = page === "live" && params.run === run && params.step === `${step}` && params.sample === `${sample}`;
    return same && /^\d+$/.test(params.token || "") ? Number(params.token) : null;
  }
}

export const pointing = new Pointing();
