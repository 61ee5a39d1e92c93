"""What the small files of a model tell: where they are, whether the engine can load the model, how large it is. No weights are loaded.

:mod:`files`               finding a model's files: a folder, the hub's cache, the hub
:mod:`facts`               whether the engine can load the model, and what it needs to know of it: start here
:mod:`learner`             the same for the model that learns, by stage, remembered while its files stay as they are
:mod:`weights`             the names and shapes of the weights
:mod:`tokenizer_files`     the vocabulary and the special tokens
:mod:`shape`               the sizes that decide the memory
:mod:`size_checks`         sizes that cannot be, or do not fit the weights
:mod:`rotation`            positions whose frequencies change with a text's length
:mod:`safetensors_header`  reading the header of a safetensors file
:mod:`conversion`          the command ``convert``: from a model in another form to one that can be used
:mod:`pickles`             weights that are only pickles, and how they become safetensors
:mod:`gguf`                GGUF files, and how their weights become plain numbers
:mod:`unpacked`            weights that were quantized before, likewise
:mod:`other_formats`       what a model in any other form is, and the way out
:mod:`adapters`            kinds of adapters, and which cannot be a part of their base
:mod:`merged_adapter`      merging one into its base
:mod:`lora_targets`        which layers LoRA adapts
"""
