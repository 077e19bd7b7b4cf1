//! Examples from the mixed-precision documentation of four systems, each with the dtypes documented there.
//!
//! `cargo run --release --example autocast_region`

use precast::{
    catalogue::System,
    io::models::Model,
    observe::collect_op_stats,
    policy::Pack,
    precision::{self, Treatment},
    prelude::*,
};

/// Prints a dtype, and checks that it is the documented one.
fn show(what: &str, x: &Tensor, documented: DType) {
    println!("  {what:<58} {}", x.dtype().long_name());
    assert_eq!(x.dtype(), documented, "{what}");
}

fn main() -> Result<()> {
    paddle()?;
    torch("torch-2.15-cuda", DType::F16)?;
    torch("torch-2.15-cpu", DType::Bf16)?;
    mindspore()?;
    tensorflow()?;
    threads()?;
    statistics()
}

/// Runs the example of `paddle.amp.auto_cast`, with its custom lists and levels.
fn paddle() -> Result<()> {
    println!("paddle.amp.auto_cast");
    let mut rng = Rng::seed(1);
    let conv2d = Child::new(Conv2dSpec::new(3, 2, 3).bias(false).build(&mut rng)?);
    let data = Tensor::ones(&[10, 3, 32, 32], DType::F32);
    let auto_cast = || Autocast::new("paddle-3.3");

    let conv = autocast(auto_cast()?, || conv2d.call(&data))?;
    show("auto_cast(): conv2d", &conv, DType::F16);
    let conv = autocast(auto_cast()?.enabled(false), || conv2d.call(&data))?;
    show("auto_cast(enable=False): conv2d", &conv, DType::F32);
    let conv = autocast(auto_cast()?.full(["conv2d"]), || conv2d.call(&data))?;
    show("auto_cast(custom_black_list={'conv2d'}): conv2d", &conv, DType::F32);

    let (a, b) = (Tensor::ones(&[2, 3], DType::F32), Tensor::ones(&[2, 3], DType::F32));
    let added = auto_cast()?.low(["elementwise_add"]);
    let c = autocast(&added, || &a + &b)?;
    show("auto_cast(custom_white_list={'elementwise_add'}): a + b", &c, DType::F16);
    let d = autocast(added.op_level("O2"), || &a + &b)?;
    show("the same at level='O2': a + b", &d, DType::F16);
    Ok(())
}

/// Runs the examples of `torch.autocast`: the one for a device, and the one with a nested disabled region.
fn torch(pack: &str, low: DType) -> Result<()> {
    println!("torch.autocast, {pack}");
    let [a, b, c, d] = [1.0, 2.0, 3.0, 4.0].map(|x| Tensor::full(&[8, 8], x, DType::F32));

    let (e, f) = autocast(Autocast::new(pack)?, || {
        let e = a.matmul(&b)?; // on torch's list of ops that run low
        let f = d.matmul(&e)?; // mixed inputs are cast, too
        Ok((e, f))
    })?;
    show("e = mm(a, b)", &e, low);
    show("f = mm(d, e)", &f, low);
    // Outside the region, different dtypes are an error.
    assert!(d.matmul(&f).is_err());
    show("g = mm(d, f.float())", &d.matmul(&f.cast(DType::F32))?, DType::F32);

    autocast(Autocast::new(pack)?, || {
        let e = a.matmul(&b)?;
        let f = autocast(Autocast::new(pack)?.enabled(false), || c.matmul(&e.cast(DType::F32)))?;
        show("autocast(enabled=False): f = mm(c, e.float())", &f, DType::F32);
        show("back in the region: g = mm(d, f)", &d.matmul(&f)?, low);
        Ok(())
    })
}

/// Runs the example of `mindspore.amp.auto_mixed_precision`: LeNet5 at every level, its input in f32.
fn mindspore() -> Result<()> {
    println!("mindspore.amp.auto_mixed_precision");
    let picture = Tensor::ones(&[1, 1, 32, 32], DType::F32);
    // At level auto the output may be 16-bit: here the last layer is a product.
    for (level, documented) in [
        (Level::O0, DType::F32),
        (Level::O1, DType::F32),
        (Level::O2, DType::F32),
        (Level::O3, DType::F32),
        (Level::Auto, DType::F16),
    ] {
        let mut network = Model::named("lenet5", 0)?.net;
        Policy::from_pack(level, DType::F16, Pack::named("mindspore-2.10")?)?.apply(&mut network)?;
        let (output, stats) = collect_op_stats(|| network.call(&picture))?;
        show(&format!("amp_level='{level}': the output"), &output, documented);
        let products = stats.calls(Op::Conv2d).f16 + stats.calls(Op::Linear).f16;
        assert_eq!(products, if level == Level::O0 { 0 } else { 5 }, "2 convolutions and 3 dense layers run low");
    }
    Ok(())
}

/// Shows the lists described by `enable_mixed_precision_graph_rewrite`.
fn tensorflow() -> Result<()> {
    println!("tf.train.experimental.enable_mixed_precision_graph_rewrite");
    let region = Autocast::new("tensorflow-2.21-fp16")?;
    let rules = region.rules(DType::F16)?;
    // The documentation puts Softmax on the deny list, the code of 2.21 on the one called gray there and infer in it.
    for (op, documented) in [
        ("ArgMax", Treatment::Clear),
        ("Floor", Treatment::Clear),
        ("Conv2D", Treatment::Low),
        ("Add", Treatment::Infer),
        ("AvgPool", Treatment::Infer),
        ("Softmax", Treatment::Infer),
        ("Exp", Treatment::Full),
    ] {
        for op in Op::named_in(System::TensorFlow, op)? {
            println!("  {:<58} {}", op.name(), rules.treatment(op));
            assert_eq!(rules.treatment(op), documented, "{op}");
        }
    }
    let (picture, weight) = (Tensor::ones(&[1, 1, 4, 4], DType::F32), Tensor::ones(&[1, 1, 3, 3], DType::F32));
    autocast(region, || {
        let low = picture.conv2d(&weight, None, &Default::default())?;
        show("Conv2D of float32", &low, DType::F16);
        show("AvgPool after it", &low.avg_pool2d(2, 1)?, DType::F16);
        show("Floor after it", &low.floor()?, DType::F16);
        show("Exp after it", &low.exp()?, DType::F32);
        Ok(())
    })
}

/// Shows that a region belongs to its thread, and that `precision::carry` takes it to other threads.
fn threads() -> Result<()> {
    println!("threads");
    let x = Tensor::ones(&[2, 2], DType::F32);
    autocast(Autocast::new("torch-2.15-cpu")?, || {
        let carried = precision::carry();
        let (bare, inside) = std::thread::scope(|threads| {
            let bare = threads.spawn(|| x.matmul(&x)).join().expect("does not panic");
            let inside = threads.spawn(|| carried.run(|| x.matmul(&x))).join().expect("does not panic");
            (bare, inside)
        });
        show("a new thread", &bare?, DType::F32);
        show("a new thread, the region carried into it", &inside?, DType::Bf16);
        Ok(())
    })
}

/// Counts how often each op ran in each dtype.
fn statistics() -> Result<()> {
    println!("collect_op_stats");
    let x = Tensor::ones(&[4, 4], DType::F32);
    let (_, stats) = collect_op_stats(|| {
        autocast(Autocast::new("torch-2.15-cuda")?, || x.matmul(&x)?.relu()?.softmax(-1)?.sum_all())
    })?;
    println!("{stats}");
    assert_eq!((stats.calls(Op::MatMul).f16, stats.calls(Op::Relu).f16), (1, 1));
    assert_eq!((stats.calls(Op::Softmax).f32, stats.calls(Op::Sum).f32), (1, 1));
    Ok(())
}
