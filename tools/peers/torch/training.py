"""Training in torch, with the parameters and batches that the other side sends."""

import torch

import layers

LOW = {"f16": torch.float16, "bf16": torch.bfloat16}


def optimizer(about, parameters):
    options = {name: value for name, value in about.items() if name != "kind"}
    return {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[about["kind"]](parameters, **options)


def norm_of_gradients(scaler, loss, module):
    """As in torch's notes on AMP: the gradients of the scaled loss, divided by the scale."""
    grads = torch.autograd.grad(scaler.scale(loss), module.parameters(), create_graph=True)
    inverse = 1.0 / scaler.get_scale()
    return sum((grad * inverse).pow(2).sum() for grad in grads).sqrt()


def answer(head, arrays):
    """The loss of each step, the scale after it, and whether it was skipped."""
    module = layers.build(head["layer"]).train()
    count = len(head["parameters"])
    layers.load(module, head["parameters"], arrays[:count])
    rest = arrays[count:]
    batches = [
        (rest[2 * i].float().reshape(head["examples"], *head["input"]), rest[2 * i + 1].long())
        for i in range(head["batches"])
    ]
    stepper = optimizer(head["optimizer"], module.parameters())
    scaled = head["scaled"]
    scaler = torch.amp.GradScaler(
        "cpu", enabled=scaled is not None, init_scale=scaled["init"] if scaled else 1.0,
        growth_interval=scaled["interval"] if scaled else 1,
    )
    losses, scales, skips = [], [], []
    for step in range(head["steps"]):
        x, y = batches[step % len(batches)]
        if scaled and scaled["large"] and step % scaled["large"][0] == scaled["large"][0] - 1:
            x = x * scaled["large"][1]
        stepper.zero_grad()
        low = LOW[scaled["dtype"]] if scaled else torch.bfloat16
        with torch.autocast("cpu", dtype=low, enabled=scaled is not None):
            loss = torch.nn.functional.cross_entropy(module(x), y)
        if head["penalty"]:
            loss = loss + norm_of_gradients(scaler, loss, module)
        scaler.scale(loss).backward()
        before = [p.detach().clone() for p in module.parameters()]
        scaler.step(stepper)
        scale = scaler.get_scale()
        scaler.update()
        losses.append(loss.item())
        scales.append(scaler.get_scale() if scaled else 1.0)
        skipped = scaled is not None and scaler.get_scale() < scale
        assert not skipped or all(torch.equal(a, b) for a, b in zip(before, module.parameters()))
        skips.append(float(skipped))
    return {}, [torch.tensor(v, dtype=torch.float64) for v in (losses, scales, skips)]
