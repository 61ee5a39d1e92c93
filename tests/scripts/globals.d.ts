// What the pages' scripts find in the browser beside its own functions.
interface Window {
    /** plotly.js, once it is loaded (ui/assets/shared/plotly.js). */
    Plotly: any;
    /** Gradio's description of the app. */
    gradio_config: any;
}
