"""What fine-tuning, reward models and DPO share.

:mod:`trainer`        AdamW on the mean of an objective, and a state from which it goes on bit for bit: start here
:mod:`objective`      what a stage says of its loss; :mod:`pairs`: of a loss of pairs
:mod:`batch_passes`   the gradient of a batch, cut into micro-batches, lanes and ranks
:mod:`training_loop`  a whole training in memory, for models that are not runs
:mod:`stage`          a run: steps, measurements, checkpoints; what a model that writes answers
:mod:`examples`       demonstrations and pairs, read and encoded
:mod:`loading`        the model that learns
:mod:`watching`       what people see of it
"""
