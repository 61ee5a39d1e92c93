// Small preferences that outlast this tab, kept by the browser on this machine.
import { preferences } from "./dom.js";

export const lasting = preferences(() => localStorage);
