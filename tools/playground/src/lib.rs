//! Plans in a browser: a network is read from bytes that the page has, and planned by the texts of policies.

#![forbid(unsafe_code)]

use precast::{
    Plan, Policy,
    cell::Trace,
    error::{Error, Result},
    io::models::Model,
    no_grad,
    plan::ModelSummary,
    policy::{GraphPolicy, PolicyFile, Prefer},
    storage::stored::StoredModel,
};
use precast_explorer::{About, Data, Inferred, NodesView, View, of_cells, of_nodes};
use precast_graph::{
    Graph, NodeDecision,
    onnx::{ImportOptions, OnnxModel, OnnxNetwork},
};
use serde_json::json;
use wasm_bindgen::prelude::wasm_bindgen;

/// Largest product of the numbers of parameters and of inputs with which a network is called: at most that many
/// multiply-adds, which take a tenth of a second.
const MOST_WORK: u64 = 1 << 28;
/// Examples of the call whose graph is recorded. The decisions about its nodes do not depend on their number.
const BATCH: usize = 2;

/// A network to plan.
#[wasm_bindgen]
pub struct Subject {
    name: String,
    network: Network,
}

enum Network {
    Built(Model),
    Stored(StoredModel),
    /// An ONNX model, and the network that is imported from it once a policy for cells is given.
    Onnx(Box<OnnxModel>, Option<Model>),
}

/// The beginnings of safetensors files.
#[wasm_bindgen]
#[derive(Default)]
pub struct Headers {
    files: Vec<(String, u64, Vec<u8>)>,
}

#[wasm_bindgen]
impl Headers {
    /// Creates an empty list.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        Headers::default()
    }

    /// Adds a file of this length, with its first bytes.
    pub fn add(&mut self, name: String, length: f64, start: Vec<u8>) {
        self.files.push((name, length as u64, start));
    }
}

#[wasm_bindgen]
impl Subject {
    /// Builds a model shipped with precast.
    pub fn shipped(name: &str) -> Result<Subject, String> {
        let model = Model::named(name, 0).map_err(in_words)?;
        Ok(Subject { name: format!("{name} (built in)"), network: Network::Built(model) })
    }

    /// Builds a model from its file.
    pub fn model(name: &str, text: &str) -> Result<Subject, String> {
        let model = Model::parse(text, name, 0).map_err(in_words)?;
        Ok(Subject { name: name.into(), network: Network::Built(model) })
    }

    /// Reads an ONNX model.
    pub fn onnx(name: &str, bytes: Vec<u8>) -> Result<Subject, String> {
        let model = OnnxModel::from_bytes(bytes).map_err(|error| in_words(error.in_file(name)))?;
        Ok(Subject { name: name.into(), network: Network::Onnx(Box::new(model), None) })
    }

    /// Reads the headers of safetensors files, and `config.json` if there is one.
    pub fn weights(name: &str, headers: &Headers, config: Option<Vec<u8>>) -> Result<Subject, String> {
        let files = headers.files.iter().map(|(name, length, start)| (name.as_str(), *length, start.as_slice()));
        let model = StoredModel::from_headers(files, config.as_deref()).map_err(in_words)?;
        Ok(Subject { name: name.into(), network: Network::Stored(model) })
    }

    /// Plans the network by one policy or two, and returns JSON: `data` for the page, or the first `mistake` with the
    /// place of its `policy` and, where it is known, its `line` and `column`.
    pub fn plan(&mut self, texts: Vec<String>) -> String {
        match self.planned(&texts) {
            Ok(data) => format!(r#"{{"data":{}}}"#, data.json()),
            Err((policy, error)) => {
                // Origins of texts are their letters.
                let of_text = error.location().filter(|at| letter(policy) == at.file);
                let (line, column) = (of_text.and_then(|at| at.line), of_text.and_then(|at| at.column));
                let mistake = json!({ "policy": policy, "line": line, "column": column, "text": in_words(error) });
                json!({ "mistake": mistake }).to_string()
            }
        }
    }

    fn planned(&mut self, texts: &[String]) -> Result<Data, (usize, Error)> {
        let mut read = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            read.push(policy(at, text).map_err(|error| (at, error))?);
        }
        let cells = |(name, file): &(String, PolicyFile)| Some((name.clone(), file.clone().cells().ok()?));
        let of_cells: Vec<(String, Policy)> = read.iter().filter_map(cells).collect();
        if of_cells.len() == read.len() {
            return self.cells(&of_cells);
        }
        if let Some(at) = read.iter().position(|(_, file)| matches!(file, PolicyFile::Cells(_))) {
            let words =
                "a policy with a level decides about cells, and the other policy about nodes, which do not compare";
            return Err((at, Error::policy(words)));
        }
        let graphs = read.into_iter().filter_map(|(name, file)| Some((name, file.graph().ok()?)));
        self.nodes(&graphs.collect::<Vec<_>>())
    }

    /// Returns what is known of the network without a plan.
    fn about(&self) -> About {
        let note = match &self.network {
            Network::Onnx(model, _) => model.note_on_opset(),
            Network::Built(_) | Network::Stored(_) => None,
        };
        About { model: self.name.clone(), facts: note.into_iter().collect(), ..About::default() }
    }

    /// Plans the cells.
    fn cells(&mut self, policies: &[(String, Policy)]) -> Result<Data, (usize, Error)> {
        let mut about = self.about();
        let mut planned = Vec::new();
        for (at, (_, policy)) in policies.iter().enumerate() {
            if policy.prefer == Prefer::Speed {
                let words = "`prefer: speed` measures the machine, which a browser does not allow; `precast plan` does";
                return Err((at, Error::policy(words)));
            }
            planned.push(self.network.plan(policy, &mut about).map_err(|error| (at, error))?);
        }
        let views = policies.iter().zip(&planned).map(|((name, policy), (plan, sizes, trace))| View {
            name: name.clone(),
            policy,
            plan,
            sizes,
            trace,
        });
        of_cells(&about, &views.collect::<Vec<_>>()).map_err(|error| (0, error))
    }

    /// Plans the nodes of an ONNX file, or of the graph of a call.
    fn nodes(&mut self, policies: &[(String, GraphPolicy)]) -> Result<Data, (usize, Error)> {
        let mut decisions = |policy: &GraphPolicy| -> Result<Vec<NodeDecision>> {
            match &mut self.network {
                Network::Onnx(model, _) => Ok(model.plan(policy)?.decisions().to_vec()),
                Network::Stored(_) => Err(Error::policy(
                    "a policy for graphs rewrites the graph of a call, and the network is weights without code",
                )),
                Network::Built(model) => {
                    let input = input(model, BATCH).map_err(Error::policy)?;
                    // A plan of cells is of a step of training.
                    model.net.set_train(false);
                    Ok(Graph::trace(&model.net, &model.sample(&input))?.rewrite(policy)?.decisions())
                }
            }
        };
        let mut planned = Vec::new();
        for (at, (_, policy)) in policies.iter().enumerate() {
            planned.push(decisions(policy).map_err(|error| (at, error))?);
        }
        let views = policies.iter().zip(&planned).map(|((name, policy), nodes)| NodesView {
            name: name.clone(),
            policy: policy.to_string(),
            rules: &policy.rules,
            nodes,
        });
        of_nodes(&self.about(), &views.collect::<Vec<_>>()).map_err(|error| (0, error))
    }
}

impl Network {
    /// Returns the plan of a policy with the sizes of the cells and, for a small network, a call.
    fn plan(&mut self, policy: &Policy, about: &mut About) -> Result<(Plan, ModelSummary, Trace)> {
        let model = match self {
            Network::Stored(model) => {
                let plan = policy.plan_outline(model.outline())?;
                about.facts = vec![format!("cells {}", Inferred::of(model, &plan))];
                about.unknown = Some("stored weights have no code to call".into());
                let sizes = model.summary(&plan);
                return Ok((plan, sizes, Trace::default()));
            }
            Network::Onnx(model, network) => match network {
                Some(network) => network,
                None => network.insert(OnnxNetwork::into_model(model.import(&ImportOptions::new())?)),
            },
            Network::Built(model) => model,
        };
        model.net.set_train(true);
        let plan = policy.plan(&model.net)?;
        let input = input(model, 1);
        let called = input.and_then(|input| {
            // A network of its own: weights keep the low copies that a call makes.
            let mut net = model.net.deep_copy().map_err(in_words)?;
            let _applied = plan.apply(&mut net).map_err(in_words)?;
            net.set_train(false);
            let (called, trace) = net.trace(|net| no_grad(|| net.call_many(&model.sample(&input))));
            called.map_err(in_words)?;
            let sizes = net.summary(&plan, Some(&trace)).map_err(in_words)?;
            Ok((input, sizes, trace))
        });
        match called {
            Ok((input, sizes, trace)) => {
                about.input = Some(input);
                Ok((plan, sizes, trace))
            }
            Err(why) => {
                about.unknown = Some(why);
                let sizes = model.net.summary(&plan, None)?;
                Ok((plan, sizes, Trace::default()))
            }
        }
    }
}

/// Returns the shape of a batch, or the reason why the network is not called.
fn input(model: &Model, batch: usize) -> Result<Vec<usize>, String> {
    let Some(shape) = &model.input else {
        return Err("the model does not say the shape of one example, `input: [1, 28, 28]` in a file".into());
    };
    let shape: Vec<usize> = [batch].iter().chain(shape).copied().collect();
    let inputs = shape.iter().fold(1, |product: u64, &n| product.saturating_mul(n as u64));
    let parameters: u64 = model.net.named_params().iter().map(|(_, param)| param.value().len() as u64).sum();
    if inputs.saturating_mul(parameters.max(1)) > MOST_WORK {
        return Err("a call would take seconds in a browser; `precast plan --html` makes it".into());
    }
    Ok(shape)
}

/// Reads the text of a policy, with its name: that of the shipped policy with this text, otherwise its letter.
fn policy(at: usize, text: &str) -> Result<(String, PolicyFile)> {
    match PolicyFile::names().find(|name| PolicyFile::shipped_text(name) == Some(text)) {
        Some(name) => Ok((format!("{name} (built in)"), PolicyFile::named(name)?)),
        None => Ok((format!("policy {}", letter(at)), PolicyFile::parse(text, letter(at))?)),
    }
}

/// Returns the letter of a policy, which is also its origin in errors.
fn letter(at: usize) -> &'static str {
    ["A", "B"].get(at).copied().unwrap_or("?")
}

fn in_words(error: Error) -> String {
    error.to_string()
}

/// Returns the names of the shipped models.
#[wasm_bindgen]
pub fn models() -> Vec<String> {
    Model::names().map(String::from).collect()
}

/// Returns the names of the shipped policies.
#[wasm_bindgen]
pub fn policies() -> Vec<String> {
    PolicyFile::names().map(String::from).collect()
}

/// Returns the text of a shipped policy.
#[wasm_bindgen]
pub fn policy_text(name: &str) -> Option<String> {
    PolicyFile::shipped_text(name).map(String::from)
}
