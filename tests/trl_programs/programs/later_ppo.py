"""The calls of ``ppo.py`` and of ``ppo_tldr.py``, examples of TRL 0.13 to 1.12; both take the same options.

python later_ppo.py --dataset_name FOLDER --sft_model_path POLICY --reward_model_path REWARD --model_name_or_path POLICY --output_dir OUT
"""

import shutil

import torch
from accelerate import PartialState
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, HfArgumentParser

from rlhf_studio.trl import ModelConfig, ScriptArguments, get_kbit_device_map, get_peft_config, get_quantization_config
from rlhf_studio.trl.experimental.ppo import PPOConfig, PPOTrainer
from rlhf_studio.trl.trainer.utils import SIMPLE_CHAT_TEMPLATE

if __name__ == "__main__":
    parser = HfArgumentParser((ScriptArguments, PPOConfig, ModelConfig))
    script_args, training_args, model_args = parser.parse_args_into_dataclasses()
    shutil.rmtree(training_args.output_dir, ignore_errors=True)

    dtype = model_args.dtype if model_args.dtype in ["auto", None] else getattr(torch, model_args.dtype)
    model_kwargs = {"revision": model_args.model_revision, "attn_implementation": model_args.attn_implementation, "dtype": dtype}
    quantization_config = get_quantization_config(model_args)
    if quantization_config is not None:
        model_kwargs |= {"device_map": get_kbit_device_map(), "quantization_config": quantization_config}

    tokenizer = AutoTokenizer.from_pretrained(
        model_args.model_name_or_path, padding_side="left", trust_remote_code=model_args.trust_remote_code
    )
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    if tokenizer.chat_template is None:
        tokenizer.chat_template = SIMPLE_CHAT_TEMPLATE
    value_model, reward_model = (
        AutoModelForSequenceClassification.from_pretrained(training_args.reward_model_path, num_labels=1, **model_kwargs) for _ in range(2)
    )
    policy = AutoModelForCausalLM.from_pretrained(training_args.sft_model_path, **model_kwargs)
    peft_config = get_peft_config(model_args)
    ref_policy = None if peft_config else AutoModelForCausalLM.from_pretrained(training_args.sft_model_path, **model_kwargs)

    if training_args.eval_strategy == "no":  # ppo.py holds some prompts back, ppo_tldr.py reads the splits
        whole = load_dataset(script_args.dataset_name, name=script_args.dataset_config, split=script_args.dataset_train_split)
        train_dataset, eval_dataset = whole.select(range(len(whole) - 4)), whole.select(range(len(whole) - 4, len(whole)))
    else:
        splits = load_dataset(script_args.dataset_name, name=script_args.dataset_config)
        train_dataset, eval_dataset = splits[script_args.dataset_train_split], splits[script_args.dataset_test_split]

    def prepare_dataset(dataset, tokenizer):
        def tokenize(element):
            input_ids = tokenizer(element["prompt"], padding=False)["input_ids"]
            return {"input_ids": input_ids, "lengths": len(input_ids)}

        return dataset.map(tokenize, remove_columns=dataset.column_names, num_proc=training_args.dataset_num_proc)

    with PartialState().local_main_process_first():
        train_dataset, eval_dataset = prepare_dataset(train_dataset, tokenizer), prepare_dataset(eval_dataset, tokenizer)
        train_dataset = train_dataset.filter(lambda x: x["lengths"] <= 512, num_proc=training_args.dataset_num_proc)
    assert train_dataset[0]["input_ids"][-1] != tokenizer.eos_token_id

    trainer = PPOTrainer(
        args=training_args,
        processing_class=tokenizer,
        model=policy,
        ref_model=ref_policy,
        reward_model=reward_model,
        value_model=value_model,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(training_args.output_dir)
    if training_args.push_to_hub:
        trainer.push_to_hub(dataset_name=script_args.dataset_name)
    trainer.generate_completions()
