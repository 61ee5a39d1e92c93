"""The numbers and the document of the gallery (``rlhf_studio.lessons.gallery``)."""
