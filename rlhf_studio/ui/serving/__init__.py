"""How requests are answered, below the pages: connections, bodies and replies, the threads for long work, and server functions that need
nothing of Gradio."""
