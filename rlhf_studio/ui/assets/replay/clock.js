// When a replay is where: even steps, and a pause at each moment so that its sentence can be read. Pure sums.

/** The place of the last step that is not after `step`; 0 where all are. */
export function placeOf(steps, step) {
  const after = steps.findIndex((one) => one > step);
  return after < 0 ? steps.length - 1 : Math.max(0, after - 1);
}

export class ReplayClock {
  /**
   * @param count    how many steps there are, two or more
   * @param seconds  how long the replay takes, its pauses included
   * @param pauses   the places of the steps where it pauses, ascending
   * @param breath   the seconds of each pause
   */
  constructor(count, seconds, pauses, breath) {
    this.last = count - 1;
    this.pauses = [...new Set(pauses)];
    this.breath = breath;
    this.perStep = (seconds - breath * this.pauses.length) / this.last;
    this.total = seconds;
  }

  /** The place after so many seconds, also between two steps. */
  placeAt(time) {
    let paused = 0;
    for (const place of this.pauses) {
      const reached = place * this.perStep + paused;
      if (time < reached) break;
      if (time < reached + this.breath) return place;
      paused += this.breath;
    }
    return Math.min(this.last, Math.max(0, (time - paused) / this.perStep));
  }

  /** When a place is reached: at a moment, before the pause there. */
  timeOf(place) {
    return place * this.perStep + this.breath * this.pauses.filter((one) => one < place).length;
  }
}
