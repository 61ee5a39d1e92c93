"""The calls of TRL's notebook that tunes GPT-2 to write positive reviews (TRL 0.4 to 0.11), in its order; models and data are local.

python sentiment_notebook.py POLICY CLASSIFIER REVIEWS.jsonl OUT
"""

import sys

import torch
from datasets import load_dataset
from tqdm import tqdm
from transformers import AutoTokenizer, pipeline

from rlhf_studio.trl import AutoModelForCausalLMWithValueHead, PPOConfig, PPOTrainer
from rlhf_studio.trl.core import LengthSampler

policy, classifier, reviews, out = sys.argv[1:]
config = PPOConfig(model_name=policy, learning_rate=1.41e-5, batch_size=4, mini_batch_size=2, ppo_epochs=2, log_with=None)
sent_kwargs = {"top_k": None, "function_to_apply": "none", "batch_size": 16}

tokenizer = AutoTokenizer.from_pretrained(config.model_name)
tokenizer.pad_token = tokenizer.eos_token
query_length = LengthSampler(2, 8)


def tokenize(row):
    row["input_ids"] = tokenizer.encode(row["review"])[: query_length()]
    row["query"] = tokenizer.decode(row["input_ids"])
    return row


dataset = load_dataset("json", data_files=reviews, split="train").rename_columns({"text": "review"})
dataset = dataset.filter(lambda row: len(row["review"]) > 10, batched=False).map(tokenize, batched=False)
dataset.set_format(type="torch")

model = AutoModelForCausalLMWithValueHead.from_pretrained(config.model_name)
ref_model = AutoModelForCausalLMWithValueHead.from_pretrained(config.model_name)
ppo_trainer = PPOTrainer(
    config, model, ref_model, tokenizer, dataset=dataset, data_collator=lambda rows: {key: [row[key] for row in rows] for key in rows[0]}
)
device = ppo_trainer.accelerator.device
if ppo_trainer.accelerator.num_processes == 1:
    device = 0 if torch.cuda.is_available() else "cpu"
sentiment_pipe = pipeline("sentiment-analysis", model=classifier, device=device)

response_length = LengthSampler(4, 16)
generation_kwargs = {"min_length": -1, "top_k": 0.0, "top_p": 1.0, "do_sample": True, "pad_token_id": tokenizer.eos_token_id}

for _epoch, batch in enumerate(tqdm(ppo_trainer.dataloader)):
    query_tensors = batch["input_ids"]
    response_tensors = []
    for query in query_tensors:
        generation_kwargs["max_new_tokens"] = response_length()
        response = ppo_trainer.generate(query, **generation_kwargs)
        response_tensors.append(response.squeeze()[len(query) :])
    batch["response"] = [tokenizer.decode(response.squeeze()) for response in response_tensors]

    texts = [query + response for query, response in zip(batch["query"], batch["response"], strict=False)]
    outputs = sentiment_pipe(texts, **sent_kwargs)
    rewards = [torch.tensor(item["score"]) for output in outputs for item in output if item["label"] == "POSITIVE"]

    stats = ppo_trainer.step(query_tensors, response_tensors, rewards)
    ppo_trainer.log_stats(stats, batch, rewards)

dataset.set_format("pandas")
few = dataset[:].sample(2)
for ids in few["input_ids"].tolist():
    query = torch.tensor(ids).to(device)
    for either in (ref_model, model):
        either.generate(query.unsqueeze(dim=0), max_new_tokens=response_length(), do_sample=True, pad_token_id=tokenizer.eos_token_id)

model.save_pretrained(out)
tokenizer.save_pretrained(out)
