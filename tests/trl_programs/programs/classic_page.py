"""The calls of the PPO page in the documentation of TRL 0.7 to 0.11; models and data are local.

python classic_page.py POLICY CLASSIFIER REVIEWS.jsonl OUT
"""

import sys

import torch
from datasets import load_dataset
from tqdm import tqdm
from transformers import AutoTokenizer, pipeline

from rlhf_studio.trl import AutoModelForCausalLMWithValueHead, PPOConfig, PPOTrainer
from rlhf_studio.trl.core import LengthSampler

policy, classifier, reviews, out = sys.argv[1:]
dataset = load_dataset("json", data_files=reviews, split="train").rename_column("text", "query")

config = PPOConfig(model_name=policy, learning_rate=1.41e-5, batch_size=8, mini_batch_size=4, gradient_accumulation_steps=2, ppo_epochs=2)
model = AutoModelForCausalLMWithValueHead.from_pretrained(config.model_name)
tokenizer = AutoTokenizer.from_pretrained(config.model_name)
tokenizer.pad_token = tokenizer.eos_token
reward_model = pipeline("text-classification", model=classifier)


def tokenize(sample):
    sample["input_ids"] = tokenizer.encode(sample["query"])[:6]
    return sample


dataset = dataset.map(tokenize, batched=False)
dataset.set_format("torch")
ppo_trainer = PPOTrainer(
    model=model,
    config=config,
    dataset=dataset,
    tokenizer=tokenizer,
    data_collator=lambda rows: {key: [row[key] for row in rows] for key in rows[0]},
)

output_length_sampler = LengthSampler(4, 12)
generation_kwargs = {"min_length": -1, "top_k": 0.0, "top_p": 1.0, "do_sample": True, "pad_token_id": tokenizer.eos_token_id}

epochs = 2
for _epoch in tqdm(range(epochs), "epoch: "):
    for batch in tqdm(ppo_trainer.dataloader):
        query_tensors = batch["input_ids"]
        response_tensors, ref_response_tensors = ppo_trainer.generate(
            query_tensors,
            return_prompt=False,
            generate_ref_response=True,
            batch_size=8,
            length_sampler=output_length_sampler,
            **generation_kwargs,
        )
        batch["response"] = tokenizer.batch_decode(response_tensors)
        batch["ref_response"] = tokenizer.batch_decode(ref_response_tensors)

        texts = [query + response for query, response in zip(batch["query"], batch["response"], strict=False)]
        outputs = reward_model(texts, top_k=None)
        rewards = [torch.tensor(output[1]["score"]) for output in outputs]

        stats = ppo_trainer.step(query_tensors, response_tensors, rewards)
        ppo_trainer.log_stats(stats, batch, rewards, columns_to_log=["query", "response", "ref_response"])

ppo_trainer.save_pretrained(out)
