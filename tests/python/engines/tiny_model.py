"""A Qwen2-VL of two million random weights, with a tokenizer of bytes: tiny_model.py FOLDER SEED."""
import json
import pathlib
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2VLConfig, Qwen2VLForConditionalGeneration

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
           "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
HIDDEN = 256


def make_tokenizer(folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(["describe the image of this world please " * 50], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>",
                                   pad_token="<|endoftext|>", additional_special_tokens=SPECIAL[1:])
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)
    return {token: fast.convert_tokens_to_ids(token) for token in SPECIAL}


def make_config(ids):
    text = dict(
        vocab_size=512, hidden_size=HIDDEN, intermediate_size=512, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "mrope_section": [8, 12, 12], "rope_theta": 10000.0},
        tie_word_embeddings=False, bos_token_id=ids["<|im_start|>"], eos_token_id=ids["<|im_end|>"],
        pad_token_id=ids["<|endoftext|>"])
    vision = dict(depth=2, embed_dim=128, hidden_size=HIDDEN, num_heads=2, mlp_ratio=2, patch_size=14,
                  spatial_merge_size=2, temporal_patch_size=2, in_channels=3)
    return Qwen2VLConfig(
        text_config=text, vision_config=vision, image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"], vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"], tie_word_embeddings=False,
        architectures=["Qwen2VLForConditionalGeneration"])


def make(folder, seed):
    torch.manual_seed(seed)
    ids = make_tokenizer(folder)
    Qwen2VLForConditionalGeneration(make_config(ids)).to(torch.bfloat16).save_pretrained(folder)
    # The published configurations have the text model's fields at the top too, and SGLang reads some there.
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config = {**config["text_config"], **config}
    config["rope_scaling"] = {"type": "mrope", "mrope_section": [8, 12, 12]}
    config["rope_theta"] = 10000.0
    config["vision_token_id"] = ids["<|vision_pad|>"]
    config["vision_config"]["in_chans"] = 3
    path.write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(dict(
        min_pixels=3136, max_pixels=1003520, patch_size=14, temporal_patch_size=2, merge_size=2,
        image_mean=[0.5] * 3, image_std=[0.5] * 3, image_processor_type="Qwen2VLImageProcessor",
        processor_class="Qwen2VLProcessor")))


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    make(target, int(sys.argv[2]))
