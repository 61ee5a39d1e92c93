"""How requests are answered, below the pages: connections, and server functions that need nothing of Gradio."""
