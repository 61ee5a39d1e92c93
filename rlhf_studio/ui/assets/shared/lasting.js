// Small preferences that outlast this tab, kept by the browser on this machine; a blocked storage is no reason to fail.
export const lasting = {
  get(key, fallback) {
    try {
      const text = localStorage.getItem(`rlhf-studio.${key}`);
      return text === null ? fallback : JSON.parse(text);
    } catch {
      return fallback;
    }
  },
  set(key, value) {
    try {
      localStorage.setItem(`rlhf-studio.${key}`, JSON.stringify(value));
    } catch {
      // private windows may refuse; the choice then lasts until the page is left
    }
  },
};
