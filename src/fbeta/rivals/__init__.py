"""Other methods for multi-label classification, with the face of the library's own."""
