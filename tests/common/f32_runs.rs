//! MindSpore's recorded calls in which every op ran in f32.

use serde_json::Value;

/// Returns the recorded results, by the name of the case: at O0, and at levels that lower nothing in this network.
pub fn f32_runs(net: &Value) -> Vec<(&str, &Value)> {
    let is_f32 =
        |op: &Value| (2..4).all(|i| op[i].as_array().is_some_and(|all| all.iter().all(|dtype| dtype == "f32")));
    let mut runs = vec![];
    for (name, case) in net["cases"].as_object().into_iter().flatten() {
        let run = &case["pynative"];
        if !run["out"].is_null() && run["ops"].as_array().is_some_and(|ops| ops.iter().all(is_f32)) {
            runs.push((name.as_str(), &run["out"]));
        }
    }
    runs
}
