// Parts of the form that the steps show as well: a part is in one of both at a time, so that it has one state.

export class Borrowed {
  constructor() {
    this.places = new Map(); // node -> what stands for it in the form
  }

  /** The node, taken out of the form. */
  take(node) {
    if (!this.places.has(node)) {
      const place = document.createComment("");
      node.replaceWith(place);
      this.places.set(node, place);
    }
    return node;
  }

  /** Put every node back to where it was taken from. */
  giveBack() {
    for (const [node, place] of this.places) place.replaceWith(node);
    this.places.clear();
  }
}
