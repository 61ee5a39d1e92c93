"""What the search knows of words: which say the same, in English and Chinese; which tell nothing; how they are written alike."""

from __future__ import annotations

import re

GREEK = {
    **{"α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ϵ": "epsilon", "λ": "lambda", "μ": "mu"},
    **{"π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "θ": "theta"},
}
_GREEK = str.maketrans({letter: f" {name} " for letter, name in GREEK.items()})

HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff]")
"""A Chinese character."""
_SPELLING = re.compile(r"(?<=[a-z]{3})is(?=(?:e|ed|es|ing|ation|ations)\b)")

SAME = """
advantage, advantages, 优势
adapter, adapters, peft, 适配器
agreement, inter-annotator, kappa, 一致性
api, rest, http, endpoint, curl, 接口
attach, watch another trainer, own training loop, custom loop, callback, own trainer, 自己的训练循环
baseline, 基线
batch, batch size, batches, batch_size, 批次, 批大小, 批量大小
beam search, greedy, argmax, deterministic, 贪心, 贪心解码, 确定性
beta, kl coefficient, kl_coef, kl coef, kl penalty, kl weight, kl 系数, kl系数, kl 惩罚, kl惩罚
bias, 偏差
calibration, calibrated, overconfident, 校准
catastrophic forgetting, forgets, forgetting, 灾难性遗忘, 遗忘
chart, charts, plot, curve, graph, 曲线, 图表
chat template, chat format, apply_chat_template, instruct, 对话模板, 聊天模板
chat, talk, try out the model, playground, 对话, 聊天, 试用
checkpoint, checkpoints, saved model, 检查点, 存档
class, classroom, students, student, pupils, lecture, course, school, 课堂, 全班, 学生, 同学, 班级, 上课
clip, clipped, clipping, cliprange, epsilon, 裁剪, 截断比率
clip fraction, clipped tokens, clipfrac, clip_frac, 裁剪比例
collapse, collapsed, mode collapse, 坍缩, 崩溃, 坍塌
colab, notebook, jupyter, kaggle, 笔记本环境
command line, cli, terminal, shell, 命令行, 终端
completion, response, output, answer, generation, generated text, 回答, 补全, 输出, 生成的文本
context length, max length, max_length, maximum length, max_new_tokens, max_tokens, response length, 最大长度, 回答长度
cost, price, money, expensive, 费用, 成本
cpu, without a gpu, no gpu, without gpu, laptop, no graphics card, 没有显卡, 没有 gpu, 没有gpu, 笔记本电脑
credit, credit assignment, which token, 功劳, 信用分配
critic, value model, value network, value function, value head, v_head, valuehead, 价值头, 价值函数, 价值网络, 价值模型, 评论家
crash, crashed, killed, interrupted, power cut, 中断, 崩了, 断电
cut off, cut short, truncated, truncation, no eos, does not stop, never stops, never ends, 截断, 停不下来, 不结束
dataset, data, data set, jsonl, csv, parquet, training data, 数据集, 数据, 训练数据
delete, remove, erase, 删除
demonstration, demonstrations, examples, sft data, 示范, 示例
detach, stop gradient, no_grad, detached, constants, 分离, 停止梯度, 截断梯度
device, mps, cuda device, 设备
discount, gamma, discount factor, 折扣, 折扣因子
distribution shift, off distribution, out of distribution, ood, drift, 分布偏移, 分布漂移
docker, container, compose, kubernetes, 容器
download, send, share, export, save, take home, 下载, 导出
dpo, direct preference optimization, direct preference optimisation, 直接偏好优化
early stopping, early stop, stop early, target_kl, target kl, 提前停止, 早停
ensemble, several reward models, 集成
entropy, exploration, explore, exploring, 熵, 探索
entropy bonus, entropy coefficient, ent_coef, entropy_coef, 熵奖励, 熵系数
eos, stop token, end token, end of sequence, eos_token, stop word, 结束符, 停止符
epoch, epochs, passes, ppo_epochs, num_ppo_epochs, 轮, 轮数
error, exception, traceback, 报错, 错误, 出错
evaluate, evaluation, eval, benchmark, test the model, 评估, 评测, 测评
explained variance, value fit, 解释方差
fails, broken, bug, not working, 坏了, 出故障
fall, falls, decrease, drop, go down, going down, decline, shrink, smaller, 下降, 下跌, 变小, 降低, 减小
faster, speed, slow, slower, throughput, speed up, performance, tokens per second, 速度, 太慢, 加速, 慢
feedback, human feedback, label, labels, annotate, annotator, rating, raters, labelling, 标注, 反馈, 打分, 标注者
fork, variation, branch a run, 分叉
form, format, file format, schema, 格式
freeze, frozen, freezing, requires_grad, 冻结
full fine-tuning, full finetuning, all weights, 全参数微调, 全量微调
gae, generalized advantage estimation, generalised advantage estimation, 广义优势估计
gguf, ollama, llama.cpp, vllm, deploy the model, 部署模型
gold, true reward, ground truth, real reward, 金标准, 真实奖励
gpu, cuda, graphics card, video card, nvidia, rtx, a100, h100, 显卡
gradient accumulation, micro-batch, micro batch, micro_batch_size, gradient_accumulation_steps, 微批量, 梯度累积
gradient checkpointing, activation checkpointing, 梯度检查点
gradient norm, grad norm, max_grad_norm, gradient clip, gradient spikes, exploding gradient, 梯度范数, 梯度裁剪, 梯度爆炸
gradient, gradients, slope, backward pass, backpropagation, autograd, 梯度, 反向传播
grpo, group relative, 组相对
held-out, held out, test set, validation, 留出, 测试集, 验证集
hub, hugging face, huggingface, push_to_hub, push to hub, 抱抱脸
hyperparameter, hyperparameters, hyper-parameters, settings, configuration, config, 超参数, 设置, 参数, 配置
importance sampling, importance weight, importance ratio, off-policy, off policy, 重要性采样, 重要性权重, 异策略
install, installation, pip, requirements, 安装
internet, offline, without internet, air-gapped, no internet, network, local_files_only, 离线, 断网, 没有网络, 联网, 内网
judge, llm as judge, llm-as-a-judge, gpt-4, openai, judge model, 评判, 评判模型, 裁判
kl, kl divergence, kullback-leibler, 散度, kl 散度, kl散度
kl controller, adaptive kl, kl target, target kl controller, kl horizon, 自适应, 自适应控制器, 目标 kl
lambda, lam, gae lambda, gae_lambda
language, chinese, english, translation, 中文, 语言
learning rate, lr, step size, learning_rate, 学习率
license, licence, open source, free, 开源, 许可, 免费
length penalty, too long, long answers, length bias, length reward, verbose, 长度惩罚, 太长, 过长, 长度偏差, 惩罚长度
llama, qwen, mistral, gemma, phi, own model, my model, which models, supported models, 支持哪些模型, 哪些模型, 自己的模型, 我的模型
log, logs, logging, rollouts, 日志
log-probability, log-probabilities, logprob, logprobs, log prob, log_prob, 对数概率
logits, logit
lora, low-rank, low rank adaptation, 低秩
loss, losses, objective, 损失, 目标函数
mac, macos, apple silicon, m1, m2, 苹果电脑
mask, masked, masking, 掩码
margin, 差值
meaning, mean of the number, interpret, read the chart, 含义, 看懂
memory, vram, out of memory, oom, outofmemoryerror, ram, run out of memory, gpu memory, 显存, 内存, 显存不足, 显存不够, 爆显存, 内存不足
merge, merge_and_unload, merged, 合并
metric, metrics, stats, statistics, 指标, 统计
minibatch, mini-batch, mini batch, mini_batch_size, mini batches, 小批量, 小批次
multi-gpu, multi gpu, multiple gpus, several gpus, many gpus, two gpus, ddp, distributed, data parallel, 多卡, 多 gpu, 多gpu, 多块显卡, \
\
\
分布式
model, language model, llm, 模型, 语言模型, 大模型
nan, inf, infinity, not finite, non-finite, overflow, 非数, 溢出, 无穷
noise, chance, significant, significance, luck, standard error, confidence interval, error bars, 噪声, 偶然, 显著, 标准误, 置信区间
normalise, normalize, whiten, whitening, standardise, standardize, subtract the mean, mean and std, 归一化, 标准化, 白化, 减均值, \
除以标准差, 减去均值
not learning, not increasing, not improving, not rising, stays the same, staying at, oscillates, does not learn, does not improve, \
no progress, stuck, flat, plateau, does not rise, does not increase, 不涨, 不上升, \
没有提升, 学不会, 没进步, 不收敛
optimizer, adam, adamw, 优化器
overfit, overfitting, by heart, memorise, memorize, 过拟合
over-optimisation, overoptimization, over-optimization, reward hacking, goodhart, gaming the reward, exploits, cheats, cheating, \
奖励黑客, 过度优化, 作弊, 钻空子
padding, pad, pad token, pad_token, left padding, 填充
password, login, log in, account, accounts, token for access, authentication, 密码, 登录, 账号
pause, stop, 暂停, 停止
people, permission, permissions, access, who may, allowed, viewers, viewer, read-only, look only, 权限, 观看者, 只读, 访问
phone, phones, mobile, tablet, smartphone, qr, 手机, 平板, 二维码
policy gradient, reinforce, vanilla policy gradient, log trick, score function, 策略梯度
policy, actor, policy model, 策略
ppo, proximal policy optimization, 近端策略优化
precision, bf16, bfloat16, fp16, float16, half precision, mixed precision, dtype, 精度, 半精度, 混合精度
preference, preferences, preference pairs, pairs, chosen, rejected, 偏好, 偏好对
privacy, private data, telemetry, upload, uploaded, send anything, sends data, tracking, 隐私, 上传, 泄露, 外传
prompt, prompts, query, queries, 提示词, 提示
quantization, quantisation, quantized, qlora, 4-bit, 4bit, 8-bit, 8bit, bitsandbytes, nf4, 量化
quiz, exercise, exercises, test for students, homework, exam, 测验, 作业, 考试
ratio, probability ratio, importance ratio, 概率比, 比率
reference, reference model, reference policy, ref model, ref_model, 参考模型, 参考策略
refuse, safety, harmful, toxic, toxicity, jailbreak, 安全, 有害, 毒性, 越狱
repetition, same response, same answer, same output, alike, identical, one phrase, repeat, repeats, repeating, repetitive, same word, \
same phrase, loops, 重复, 复读, 都一样, 相同的回答, 同一句话, 一句话
reproducible, reproduce, same result, seed, random seed, 可复现, 复现, 随机种子, 种子
resume, continue, restart, go on, carry on, continue training, 恢复, 接着, 继续, 续训, 断点续训, 接着跑
return, returns, cumulative reward, reward to go, 回报, 累积奖励
reverse, reversed, backwards, right to left, 反向, 倒着, 从右往左, 从后往前
reward model, rm, scoring model, reward_model, 奖励模型
reward function, custom reward, python function, own reward, my own reward, 奖励函数, 自定义奖励
reward, rewards, score, scores, 奖励, 得分, 分数
rise, increase, go up, going up, grow, climb, getting bigger, bigger, larger, 上涨, 上升, 升高, 变大, 越来越大, 增大
rloo, leave-one-out, leave one out, 留一法
rollout, rollouts, 采样过程
rules, rule-based, regex, keywords, verifiable, rlvr, verifiable reward, right answer, math, 规则, 可验证奖励, 正确答案, 数学题
sampling, sample, generate, 采样, 生成
scoring server, http server, remote reward, reward api, own server, my server, external api, 打分服务器, 奖励服务器, 外部接口
sft, supervised fine-tuning, supervised finetuning, fine-tune, finetune, instruction tuning, 监督微调, 微调
schedule, scheduler, warm-up, warmup, decay, lr schedule, cosine, linear decay, 学习率调度, 预热, 衰减
share, public link, show others, show my run, 分享, 共享, 展示
several machines, two machines, multi-node, multinode, multiple nodes, nodes, cluster, slurm, 多机, 多台机器, 集群, 多节点
sheet, sheets, worksheet, worksheets, handout, printable, print, solutions, 练习题, 练习卷, 试卷, 打印, 答案页
small model, tiny, toy, gpt2, gpt-2, 小模型
space, spaces, hugging face space, zerogpu, 空间
split, train split, 划分
surrogate, surrogate objective, surrogate loss, 代理目标, 代理目标函数
surprise, td error, temporal difference, delta, 时序差分, 时序差分误差
sweep, grid search, hyperparameter search, tune, tuning, 参数扫描, 网格搜索, 调参
system prompt, system text, system message, 系统提示, 系统提示词
teacher, teaching, teach, instructor, lesson plan, 教师, 老师, 教学, 教案
temperature, 温度
time, how long, duration, hours, minutes, takes long, time left, 时间, 多久, 多长时间, 耗时
token, tokens, 词元
tokenizer, tokenization, tokeniser, vocabulary, 分词器, 词表
top-k, top-p, top_k, top_p, nucleus, nucleus sampling
tracker, wandb, weights and biases, w&b, tensorboard, mlflow, swanlab, trackio, report_to
train, training, trained, 训练
trl, ppotrainer, ppoconfig, hugging face trl
unstable, instability, diverge, diverges, explode, explodes, exploding, blow up, blows up, 不稳定, 发散, 爆炸, 训崩
upload a file, own file, my file, local file, files, 文件
value loss, critic loss, vf_loss, vf loss, vf_coef, 价值损失
variance, 方差
verl, openrlhf, nemo, trlx, deepspeed-chat, ray, other frameworks, 其他框架
watch, monitor, live, follow a run, progress, 监控, 实时, 查看训练, 看训练
weights, parameters, safetensors, 权重
win rate, winrate, head to head, 胜率
windows, wsl, win11, 视窗
worse, degrade, degrades, gibberish, nonsense, garbage, rubbish, quality drops, 变差, 更差, 比不上, 不如, 胡言乱语, 乱码, 质量下降, 退化
zero, 0, 为零, 零
"""
"""Words that say the same to a reader: a line for each meaning, our own word first. Every one of a line finds all others."""

WEAK = frozenset(("ppo", "train", "training", "trained", "训练", "model", "llm", "模型", "大模型", "语言模型", "language model"))
"""Expressions that are everywhere here, and so tell little."""

IGNORED = frozenset(
    re.findall(
        r"\w+",
        "a about actually after again all also always am an and another any anything are as ask asked at be because been before being best "
        "better between both but by call calls came can cannot change come could did differ difference different do does doesn "
        "doing don done each either else ever "
        "every everything exactly explain few first for from get gets give gives go goes going good got had happen happens has have having "
        "help here how however i if in instead into is isn it its itself just keep know let like ll look lot made make makes many may me "
        "might more most much must my need needed needs never new no not now number of off often ok on once one only onto or other our out "
        "over own part people please possible put re really right run s said same say says see set shall she should show simply since so "
        "some someone something still such sure t take tell than thank that the their them then there these they thing things this "
        "those though to too true try two under until up upon us use used using usually ve very want was way we well were what whatever "
        "when where whether which while who whole whose why will with within without won work works would yes yet you your",
    )
)
"""English words that tell nothing by themselves."""

HAN_IGNORED = re.compile(
    "为什么|为啥|请问|里面|使用|必须|是否支持|是否|问题|出现|情况|结果|似乎|往往|导致|突然|什么样|什么|怎么办|怎么样|怎么|怎样|如何|是不是|是否|能不能|会不会|可不可以|可以|能够|需要|应该|必须|一定|一直|总是|到底|究竟|"
    "多少|哪个|哪些|哪里|哪种|意思|原因|关系|作用|影响|方法|办法|合适|有没有|没有|区别|不同|不能|不会|不用|不要|"
    "我们|我的|我想|自己的|自己|你们|他们|这个|那个|这些|之后|之前|以后|以前|的话|时候|还是|还能|或者|而不是|而是|就是|只是|如果|因为|所以|"
    "[的地得是吗呢吧啊了在和与跟把被让给从对再还就都也很太想能会要我你他它这那不有个用做]"
)
"""Chinese words that tell nothing by themselves."""


def plain(text: str) -> str:
    """Text in the form that is searched: Greek letters by name, names split at their capitals, Chinese characters apart, -ise as -ize."""
    spread = HAN.sub(r" \g<0> ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text.translate(_GREEK)))
    return _SPELLING.sub("iz", spread.lower())
