// The rows of the sample table: their order, and the parts of a reward as columns.

export const PART = "reward/"; // how the name of a part begins, as among the metrics

/** A row's number in a column; null where it has none. */
export const valueOf = (row, sort) =>
  (sort.startsWith(PART) ? row.parts?.find(([name]) => PART + name === sort)?.[1] : row[sort]) ?? null;

/**
 * Columns of the parts of the reward that some row has. A single one is left out where rows have a score: it would say
 * the same.
 *
 * @returns {{sort: string, label: string, name?: string, term: string, kind: string}[]}
 */
export function partsOf(rows) {
  const names = new Set(rows.flatMap(({ parts = [] }) => parts.map(([name]) => name)));
  const columns = [...names].map((name) => ({ sort: PART + name, label: name, term: PART + name, kind: "part" }));
  const known = columns.filter(({ sort }) => rows.some((row) => valueOf(row, sort) !== null));
  return known.length > 1 || rows.every((row) => valueOf(row, "score") === null) ? known : [];
}

/** Rows in the chosen order, the largest number first; `reverse` turns it round. */
export function sorted(rows, sort, reverse) {
  const worth = (row) => valueOf(row, sort) ?? -Infinity;
  const before = (first, second) => (sort === "order" ? 0 : worth(second) - worth(first));
  const list = [...rows].sort((first, second) => before(first, second) || first.sample - second.sample);
  return reverse ? list.reverse() : list;
}
