//! Training on real data: as accurate in f16 and bf16 as in f32, by a policy in which one layer stays in f32.

#[path = "../examples/digits.rs"]
mod digits;

use burn::tensor::Device;
use precast_burn::Policy;

/// Two digits of 297 are 0.7 points, so the mean of three runs is compared: 0.5 points are 4.5 digits of 891.
#[test]
fn low_precision_trains_to_the_accuracy_of_f32() {
    let text = include_str!("../examples/digits.yaml");
    let accuracy = |policy: &Policy| {
        let runs = [1, 2, 3].map(|seed| digits::train(policy, seed, 5, &Device::default()).unwrap());
        assert!(runs.iter().all(|run| run.skipped < 5));
        runs.iter().map(|run| run.accuracy).sum::<f64>() / 3.0
    };
    let full = accuracy(&Policy::named("o0").unwrap());
    assert!(full > 0.93, "{full}");
    for dtype in ["float16", "bfloat16"] {
        let low = accuracy(&Policy::parse(&text.replace("float16", dtype), "digits.yaml").unwrap());
        println!("{dtype}: {low:.4}, f32: {full:.4}");
        assert!(low >= full - 0.005, "{dtype}: {low}, f32: {full}");
    }
}
