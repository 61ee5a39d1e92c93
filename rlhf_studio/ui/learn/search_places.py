"""What the search knows beside the texts: the app's other pages, and other words for some places."""

from __future__ import annotations

PAGES = (
    (
        "Runs tab",
        "Checkpoints: save and resume training",
        "A run saves checkpoints while it trains. The Runs tab lists the runs; a stopped run can be resumed there. "
        "The settings are engine.checkpoint_every and engine.keep_checkpoints.",
    ),
    (
        "Evaluate tab",
        "Win rate: which of two models answers better",
        "The Evaluate tab compares checkpoints and models: win rate, scores, answers side by side.",
    ),
    (
        "Talk tab",
        "Talk to a checkpoint",
        "Write prompts of your own, chat with a checkpoint, and see each token's probability.",
    ),
    (
        "Feedback tab",
        "Human feedback: label preferences",
        "Compare answers yourself and train a reward model on your preferences.",
    ),
    ("Live tab", "Charts of a run: metrics, stats, samples", "Watch loss, KL, reward and samples of a run while it trains."),
)
"""What is found outside Learn: where, a title, and what is said of it."""

OTHER_WORDS = {
    "docs/faq.md#how-do-i-start": "begin, first steps, tutorial, getting started, quick start, 入门, 开始, 怎么开始",
    "docs/faq.md#may-the-reward-model-be-another-model-than-the-policy": (
        "same base, same backbone, same architecture, other tokenizer, size mismatch, my own reward model in PPO, "
        "其他模型, 基座模型, 保持一样, 自己训练的奖励模型, 不同的模型"
    ),
    "before_the_loop": "start of train, all the setup before it",
    "before_the_loop/doubled": "effect of each hyperparameter, 超参数的影响",
    "before_the_loop/one_batch": "batch size, mini-batch, gradient accumulation, optimizer steps, 批大小, 小批量, 梯度累积",
    "beyond": "DPO versus PPO",
    "beyond/compared": "without a critic, group of answers, 不要 critic",
    "beyond/preferred": "DPO or PPO, preference pairs, DPO 和 PPO",
    "clip/dead_zones": "gradient is zero, clipped tokens, min or max, 梯度为零, 裁剪之后, 取最小值",
    "clip/entropy": "exploration, entropy coefficient, 探索",
    "clip/ratio": "gradient at a ratio with a negative advantage",
    "clip/value_clip": "cliprange_value, value clipping, 价值裁剪",
    "docs/access.md#a-class": "what students may do, only look, buttons, read-only, privacy of students, 学生权限, 只能看",
    "docs/access.md#four-ways-to-use-it": "read-only, viewers, password, who can press buttons, 只读, 观看, 权限, 密码",
    "docs/access.md#operators": "login, token, password, 登录, 密码, 操作者",
    "docs/api.md": "REST API, HTTP, endpoints",
    "docs/api.md#a-run-can-tell": "notification, webhook, Slack, email, message when done, 通知, 提醒",
    "docs/api.md#an-agent-by-mcp": "MCP, Claude, agent, tools, 智能体",
    "docs/attach.md": "watch TRL, GRPOTrainer, Trainer callback, own script, 监控自己的训练",
    "docs/data.md#chats": "chat template",
    "docs/data.md#demonstrations": "SFT data, instruction data, 监督微调的数据",
    "docs/data.md#held-out-prompts": "test set, validation prompts, 测试集",
    "docs/data.md#pairs-rankings-and-ratings": "preference data, chosen and rejected, DPO data, 偏好数据",
    "docs/data.md#private-and-gated-datasets-and-models": "token, HF_TOKEN, login, 401, gated repo, Llama access, 登录, 令牌, 私有模型",
    "docs/data.md#sources": "load my dataset, file formats, hub dataset, local files, 数据集, 读取文件, 本地",
    "docs/deploy.md": "server, host it, remote machine, install, 服务器, 部署, 远程",
    "docs/deploy.md#a-class": "students join, phones, QR code, school network, 学生加入, 手机, 二维码",
    "docs/deploy.md#a-container": "docker run, compose, kubernetes, podman, 容器",
    "docs/deploy.md#a-gradio-space": "deploy to a Space, deploy a Space, host it on Spaces",
    "docs/deploy.md#a-notebook-server": "Colab, Jupyter, Kaggle, 笔记本",
    "docs/deploy.md#a-proxy-with-tls": "HTTPS, nginx, caddy, reverse proxy, certificate, 证书, 反向代理",
    "docs/deploy.md#windows": "WSL, Windows 10, Windows 11",
    "docs/doctor.md": "what is wrong with my run, diagnose, health, warnings, 诊断, 出了什么问题",
    "docs/doctor.md#settings-before-start": "is my learning rate too high, check my config, 设置检查",
    "docs/evaluation.md": "compare two models, before and after, win rate, benchmark, 对比模型, 训练前后, 评测",
    "docs/evaluation.md#a-first-look-at-safety": (
        "harmful, jailbreak, red team, bias, fairness, demographic swap, refuses, 安全, 有害, 越狱, 偏见, 公平"
    ),
    "docs/evaluation.md#the-frontier": "over-optimisation, reward against KL, Goodhart, 过度优化曲线",
    "docs/export.md": "save, download, use elsewhere, 导出, 下载, 保存模型",
    "docs/export.md#the-hub": "push_to_hub, upload the model, publish, 发布模型",
    "docs/export.md#the-replay": "video, GIF, animation, share a run, 动画, 视频, 回放",
    "docs/export.md#weights": "save_pretrained, merged model, safetensors, adapter, 保存权重, 合并后的模型",
    "docs/extending.md": "contribute, plugin, add, 扩展, 贡献",
    "docs/faq.md#can-a-class-use-it-together": "students, teacher, workshop, phones, QR, 学生, 老师, 上课, 手机, 同学",
    "docs/faq.md#can-i-follow-a-run-in-weights--biases-tensorboard-or-another-tracker": "wandb, mlflow, logging, 日志, 记录",
    "docs/faq.md#can-i-stop-a-run-and-go-on-later": "resume, interrupted, crash, continue, 中断, 恢复, 继续训练, 断点续训",
    "docs/faq.md#can-i-use-a-model-that-i-trained-with-lora": "adapter, merge, PEFT checkpoint, 合并, 适配器",
    "docs/faq.md#can-it-work-without-the-internet": "offline, local disk, air-gapped, firewall, proxy, 离线, 断网, 内网, 本地模型",
    "docs/faq.md#do-i-need-a-gpu": "laptop, requirements, hardware, which machine, mac, CPU, 没有显卡, 需要什么配置, 电脑, 硬件",
    "docs/faq.md#do-i-need-a-reward-model-at-all": "verifiable rewards, rules, without a reward model, 不用奖励模型",
    "docs/faq.md#do-numbers-agree-with-trl": "correct, verified, compared with TRL, 和 TRL 一致",
    "docs/faq.md#does-it-send-anything-anywhere": "privacy, telemetry, data protection, GDPR, upload, cloud, 隐私, 上传, 数据安全, 泄露",
    "docs/faq.md#how-do-i-train-on-my-own-data": "custom dataset, jsonl, csv, format, 自己的数据, 数据集格式, 自定义数据",
    "docs/faq.md#how-do-i-use-the-trained-model-elsewhere": (
        "deploy, inference, load it in transformers, download, 导出, 部署, 训练好的模型, 推理"
    ),
    "docs/faq.md#how-do-i-write-a-reward-of-my-own": "custom reward function, 自定义奖励函数, 自己写奖励",
    "docs/faq.md#how-long-does-a-run-take": "duration, ETA, overnight, 训练要多久, 多长时间",
    "docs/faq.md#is-it-bad-when-the-entropy-falls": "entropy collapse, exploration, diversity, high entropy, 熵下降, 多样性, 探索",
    "docs/faq.md#is-the-difference-between-two-runs-real": "seeds, significant, variance, reproducible, 随机种子, 显著",
    "docs/faq.md#must-i-use-the-app": "script, command line, headless, no browser, server, SSH, 命令行, 不用界面",
    "docs/faq.md#my-model-gives-nonsense-after-training-can-i-have-an-earlier-state": (
        "roll back, undo, restore, gibberish, 回退, 恢复, 乱码, 变差"
    ),
    "docs/faq.md#ppo-grpo-rloo-or-dpo-which-one": "which algorithm, compare, better, reasoning, RLVR, 哪个算法好, 选哪个, 区别",
    "docs/faq.md#responses-are-cut-off-do-not-end-or-are-too-long-what-can-i-do": (
        "EOS, max length, truncated, verbose, short, length, 截断, 停不下来, 太长, 太短"
    ),
    "docs/faq.md#the-kl-the-ratio-or-the-clip-fraction-explodes-why": (
        "unstable, diverges, too large update, approxkl, spikes, 训练不稳定, 发散, KL 爆炸"
    ),
    "docs/faq.md#the-loss-does-not-fall-or-is-negative-is-that-wrong": (
        "negative loss, loss goes up, does it converge, 损失不下降, 损失是负数, 收敛"
    ),
    "docs/faq.md#the-loss-is-nan-what-now": "inf, overflow, loss becomes nan, 损失变成 nan, 数值溢出",
    "docs/faq.md#the-responses-repeat-themselves-or-all-look-alike-why": (
        "same word over and over, mode collapse, diversity, loops, 重复, 复读, 千篇一律, 都一样"
    ),
    "docs/faq.md#the-reward-does-not-rise-what-should-i-look-at": (
        "not learning, stuck, flat, no improvement, 奖励不涨, 不收敛, 学不到东西, 没有进步"
    ),
    "docs/faq.md#the-reward-rises-but-the-text-gets-worse-why": (
        "worse quality, hacking, gibberish, exploit, 越训越差, 变差, 胡说, 作弊, 钻空子"
    ),
    "docs/faq.md#what-about-padding-and-a-pad-token-that-is-the-end-token": "pad_token equals eos_token, tokenizer has no pad token, 填充",
    "docs/faq.md#what-do-the-metrics-mean": "stats, columns, curves, explained, 指标含义, 看懂曲线",
    "docs/faq.md#what-does-the-kl-coefficient-do-and-what-if-it-is-zero": (
        "beta, penalty, tune beta, too high, too low, KL 系数怎么调, 设为零"
    ),
    "docs/faq.md#which-hyperparameters-should-i-start-with": (
        "default values, learning rate, how to tune, recommended settings, 超参数怎么设, 调参, 推荐, 学习率设多少"
    ),
    "docs/faq.md#which-label-of-a-sentiment-classifier-is-the-reward": "the positive reward is extracted",
    "docs/faq.md#which-models-are-in-memory-and-what-is-each-for": "four models, actor, critic, reference, reward, 四个模型",
    "docs/faq.md#which-models-can-i-train": "supported, Llama, Qwen, Mistral, 7B, 支持哪些模型, 千问",
    "docs/faq.md#why-does-a-model-need-ppo-and-not-just-fine-tuning-on-good-examples": (
        "why RL, SFT is enough, imitation, 为什么需要强化学习, 为什么不用监督微调"
    ),
    "docs/feedback.md#a-task": "label, annotate, crowd, raters, 标注任务",
    "docs/feedback.md#results": "inter-annotator agreement",
    "docs/guide.md#going-another-way-forks-variations-more-steps-sweeps": (
        "from a checkpoint with another setting, different learning rate, grid search, hyperparameter search, 换设置继续, 参数扫描"
    ),
    "docs/guide.md#reading-the-charts": "which curve, what is normal, healthy run, 看曲线, 正常吗",
    "docs/guide.md#running-it-for-others": "share, colleagues, server, 分享, 给别人用",
    "docs/guide.md#talk-to-it": "chat, try the model, 试试模型, 对话",
    "docs/guide.md#what-is-on-the-disk": "where are files saved, log file, tensorboard, 保存在哪里, 日志文件",
    "docs/guide.md#while-it-runs": "pause, stop, resume, kill, change settings during training, 暂停, 停止, 恢复, 训练中改设置",
    "docs/library.md": "Python API, notebook, without the app, import, 用 Python, 编程",
    "docs/logs.md": "open rollouts of verl, TRL, OpenRLHF, import, 导入日志",
    "docs/many-gpus.md": "multi-GPU, distributed training",
    "docs/many-gpus.md#fsdp-the-weights-split-over-the-processes": "ZeRO, shard, model too large for one GPU, 分片, 模型太大",
    "docs/many-gpus.md#several-machines": "multi-node, two machines, cluster, slurm, 多机, 多节点, 集群",
    "docs/many-gpus.md#the-fields-distributed-engines": "verl, OpenRLHF, export settings, 迁移到 verl",
    "docs/models.md#a-model-in-another-form": "convert, GGUF, pickle, bin, AWQ, GPTQ, 转换",
    "docs/models.md#less-memory": "OOM, out of memory, VRAM, 显存不足, 省显存",
    "docs/models.md#lora": "target_modules, rank, alpha, peft_config, 目标模块, 秩",
    "docs/models.md#the-reference": "ref_model, KL to the base, 参考模型",
    "docs/models.md#what-can-be-trained": "supported architectures, Llama, Qwen, local folder, 支持的模型, 本地模型",
    "docs/performance.md": "benchmark, how fast, throughput, 速度, 性能",
    "docs/performance.md#on-a-gpu": "H100, GPU speed, tokens per second, 显卡速度",
    "docs/planner.md": "how much memory a 7B model needs",
    "docs/planner.md#memory": "VRAM calculator, estimate, OOM, 显存估算",
    "docs/planner.md#time": "how long, hours, estimate, 要多久",
    "docs/reward-models.md": "train a reward model, Bradley-Terry, 训练奖励模型",
    "docs/rewards.md#a-function-of-your-own": "custom reward function, Python, 自定义奖励函数",
    "docs/rewards.md#a-model-as-judge": "LLM as a judge, GPT-4, OpenAI, rubric, 大模型打分, 评判模型",
    "docs/rewards.md#a-reward-that-is-right-or-wrong": "math, GSM8K, verifiable reward, RLVR, exact match, 数学题, 可验证奖励",
    "docs/rewards.md#a-scoring-server": "own server, HTTP, external API, endpoint, remote, 外部接口, 打分服务",
    "docs/rewards.md#ask-people": "human in the loop, manual, 人工打分",
    "docs/rewards.md#how-good-is-a-reward-model": "accuracy, calibration, evaluate the reward model, 奖励模型准不准",
    "docs/rewards.md#rules": "length, keywords, regex, format reward, penalize, 规则, 惩罚, 格式奖励",
    "docs/road.md": "SFT, reward model, PPO, whole pipeline, three stages in one, 全流程, 三个阶段",
    "docs/teaching.md#a-quiz-and-results-without-accounts": "grades, test, marks, results of students, 测验, 成绩",
    "docs/teaching.md#ask-before-showing": "poll, vote, prediction, show of hands, quiz the class, 投票, 预测, 课堂提问",
    "docs/teaching.md#in-class": "classroom, students, phones, projector, slides, lecture, 全班, 手机, 投影, 幻灯片, 上课",
    "docs/teaching.md#sheets": "worksheet, print, homework, solutions, exam, 练习题, 作业, 答案, 打印",
    "gae": "gamma and lambda factors, discount factor",
    "gae/bias_and_variance": "lambda trade-off, Monte Carlo or TD, 偏差与方差",
    "gae/constants": "detach the result from the computation graph, no_grad",
    "gae/credit": "sparse reward, delayed reward, only one score at the end, 稀疏奖励, 只有最后一个奖励",
    "gae/right_to_left": "computation in reverse, reversed, backwards",
    "gae/whitening": "normalize normalise standardize advantages",
    "logprobs/which_tokens": "why mask the query, the prompt, the padding",
    "lora/count": "how many parameters, trainable parameters, rank, 可训练参数量, 秩",
    "lora/memory": "GPU memory VRAM OOM out of memory",
    "lora/start_and_merge": "merge_and_unload",
    "policy_and_value": "value model, value network, value function, critic",
    "policy_and_value/value_per_token": "baseline, what the critic is for, 基线, critic 有什么用",
    "policy_and_value/where_the_trunk_is": "getattr, critic_backbone, base_model_prefix",
    "query_and_response/only_the_response": "focus on the response, not on the query, what happens after the stop token, EOS, end token",
    "reference/memory": "four models, GPU memory, VRAM, ZeRO-3, DeepSpeed, 7B",
    "reference/switch": "what adapters are doing, PEFT support, peft_config",
    "rewards": "beta, the KL coefficient",
    "rewards/dice": "k1 vs k3",
    "rewards/last_token": "sparse reward, one score for the whole response, why only the last token, 稀疏奖励, 只有一个得分",
    "rewards/thermostat": "adaptive KL controller, target KL, tune beta, KL 系数怎么调",
    "rlhf/only_good": "fine-tune on positive reviews, SFT",
    "sampling/temperature": "creative, random, diversity, 随机性",
    "tour.minibatch": "ratio starts at one, old log-probabilities, 概率比从一开始",
    "tour.whitening": "normalize normalise standardize advantages",
    "what_goes_wrong/more_passes": "too many epochs, num_ppo_epochs, approxkl in later epochs, 轮数太多",
    "what_goes_wrong/price": "beta zero, without KL penalty, 没有 KL 惩罚, β 为零",
    "what_goes_wrong/two_curves": "reward hacking, over-optimisation, exploits the judge",
    "what_goes_wrong/useless_critic": "explained variance is negative, critic does not learn, baseline, 解释方差为负",
}
"""Words that people ask with and a text does not have, by the place that answers them: a lesson, ``lesson/scene``, a station, a section of
a document (``docs/api.md#anchor``), a setting or a check of the doctor."""
