"""Networks of transformers, diffusers and peft, from their configurations."""

from __future__ import annotations

import json
from collections.abc import Callable

import precast
import pytest
import torch
from torch import nn

transformers = pytest.importorskip("transformers")

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def _llama() -> nn.Module:
    config = transformers.LlamaConfig(**SMALL, intermediate_size=64, num_key_value_heads=2, vocab_size=64)
    return transformers.LlamaForCausalLM(config)


def _mixtral() -> nn.Module:
    experts = {"num_local_experts": 4, "num_key_value_heads": 2}
    config = transformers.MixtralConfig(**SMALL, **experts, intermediate_size=64, vocab_size=64)
    return transformers.MixtralForCausalLM(config)


def _vit() -> nn.Module:
    return transformers.ViTModel(transformers.ViTConfig(**SMALL, intermediate_size=64, image_size=16, patch_size=8))


def _t5() -> nn.Module:
    config = transformers.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=64)
    return transformers.T5ForConditionalGeneration(config)


def _whisper() -> nn.Module:
    layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    sizes = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 64, "num_mel_bins": 8}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = transformers.WhisperConfig(**layers, **sizes, **tokens, max_source_positions=16, max_target_positions=16)
    return transformers.WhisperForConditionalGeneration(config)


def _lora() -> nn.Module:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return peft.get_peft_model(_llama(), config)  # type: ignore[no-any-return]


def _sdxl() -> nn.Module:
    """The U-Net of Stable Diffusion XL with two levels."""
    diffusers = pytest.importorskip("diffusers")
    return diffusers.UNet2DConditionModel(  # type: ignore[no-any-return]
        sample_size=16,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(32, 64),
        layers_per_block=1,
        attention_head_dim=(2, 4),
        norm_num_groups=8,
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 2),
        projection_class_embeddings_input_dim=80,
        cross_attention_dim=64,
    )


def _sdxl_inputs() -> dict[str, object]:
    added = {"text_embeds": torch.randn(1, 32), "time_ids": torch.randn(1, 6)}
    inputs = {"sample": torch.randn(1, 4, 16, 16), "timestep": torch.tensor([10])}
    words = {"encoder_hidden_states": torch.randn(1, 5, 64), "added_cond_kwargs": added}
    return {**inputs, **words, "return_dict": False}


def _ids() -> torch.Tensor:
    return torch.randint(3, 64, (2, 8))


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, object]]]] = {
    "llama": (_llama, lambda: {"input_ids": _ids()}),
    "mixtral": (_mixtral, lambda: {"input_ids": _ids()}),
    "vit": (_vit, lambda: {"pixel_values": torch.randn(2, 3, 16, 16)}),
    "t5": (_t5, lambda: {"input_ids": _ids(), "decoder_input_ids": _ids()}),
    "lora": (_lora, lambda: {"input_ids": _ids()}),
    "sdxl": (_sdxl, _sdxl_inputs),
    "whisper": (_whisper, lambda: {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": _ids()}),
}


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("name", CASES)
def test_a_network_runs_as_planned(name: str, level: str) -> None:
    make, draw = CASES[name]
    model, inputs = make().float().eval(), draw()
    with torch.device("meta"):
        planned = precast.Policy(level, "bfloat16").plan(make())
    plan = precast.Policy(level, "bfloat16").plan(model)
    assert json.loads(plan.to_json()) == json.loads(planned.to_json())
    with torch.no_grad():
        wide = model(**inputs)[0]
        with plan.applied(model):
            low = model(**inputs)[0]
    assert low.dtype is torch.float32
    assert not torch.equal(low, wide)
    assert (low - wide).abs().max() <= 0.1 * wide.abs().max()
    report = plan.check(model, compiled=False, **inputs)
    assert report, str(report)


def test_a_norm_of_their_own_is_noted_and_decided_by_a_rule() -> None:
    with torch.device("meta"):
        model = _llama()
    plan = precast.Policy("O2", "bfloat16").plan(model)
    assert any(note.startswith("LlamaRMSNorm has parameters of its own") for note in plan.notes)
    rule = {"kind": "LlamaRMSNorm", "run": "float32-inside", "expect": 5}
    ruled = precast.Policy("O2", "bfloat16", rules=[rule]).plan(model)
    assert len(ruled.diff(plan)) == 5
