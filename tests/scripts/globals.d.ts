// What the pages' scripts find in the browser beside its own functions.
interface Window {
    /** plotly.js, once it is loaded (ui/assets/charts/plot.js). */
    Plotly: any;
    /** Gradio's description of the app. */
    gradio_config: any;
}
/** The translations that an exported page brings with it (ui/assets/shared/language.js). */
declare var rsWords: Record<string, string> | undefined;
