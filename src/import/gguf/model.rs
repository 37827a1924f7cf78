//! From a header to a model.

use super::claims::{self, Claim, View, layer_and_name, short_name};
use super::keys::{Keys, PerLayer, WIDTH_LIMIT};
use super::layer::{self, BuiltLayer};
use super::mixer::AttentionKeys;
use super::windows::Windows;
use super::{Header, TensorInfo, Value};
use crate::format::TensorClass as Class;
use crate::format::{FileTensorsError, WeightFormat};
use crate::import::ImportError;
use crate::model::{Architecture, Linear, Model, MtpModules, Reach, Split};
use crate::profile::nearest;
use crate::units::Bytes;
use std::collections::BTreeMap;

/// Source: `LLAMA_MAX_LAYERS` in llama.cpp.
const LAYER_LIMIT: u64 = 512;

/// Architectures whose tensors and keys are known to be read right.
const ARCHITECTURES: [&str; 79] = [
    "afmoe",
    "apertus",
    "arcee",
    "arctic",
    "baichuan",
    "bailingmoe",
    "bailingmoe2",
    "bitnet",
    "bloom",
    "chatglm",
    "codeshell",
    "cohere2",
    "command-r",
    "dbrx",
    "deci",
    "deepseek",
    "deepseek2",
    "dots1",
    "ernie4_5",
    "ernie4_5-moe",
    "exaone",
    "exaone-moe",
    "exaone4",
    "falcon",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3n",
    "gemma4",
    "glm-dsa",
    "glm4",
    "glm4moe",
    "gpt-oss",
    "gpt2",
    "gptj",
    "gptneox",
    "granite",
    "granitehybrid",
    "granitemoe",
    "grok",
    "hunyuan-dense",
    "hunyuan-moe",
    "internlm2",
    "jamba",
    "kimi-linear",
    "lfm2",
    "lfm2moe",
    "llama",
    "llama4",
    "mamba",
    "mamba2",
    "mimo2",
    "minicpm",
    "minicpm3",
    "minimax-m2",
    "mistral3",
    "mpt",
    "nemotron",
    "nemotron_h",
    "nemotron_h_moe",
    "olmo",
    "olmo2",
    "olmoe",
    "phi2",
    "phi3",
    "phimoe",
    "qwen",
    "qwen2",
    "qwen2moe",
    "qwen3",
    "qwen35",
    "qwen35moe",
    "qwen3moe",
    "qwen3next",
    "seed_oss",
    "smollm3",
    "stablelm",
    "starcoder",
    "starcoder2",
];

/// A model read from a GGUF header.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ImportedGguf {
    /// The model; its parameters are exactly the elements of its tensors.
    pub model: Model,
    /// Exact parameters and bytes, by layer and class; the parameters sum to `model.params_total()`.
    pub weights: Vec<TensorBytes>,
    /// Bytes of multi-token-prediction modules.
    pub mtp_bytes: Bytes,
    /// Bytes of tensors that are no weights of the decoder: rotary tables, duplicates, vision and audio towers.
    pub other_bytes: Bytes,
}

/// The tensors of one class in one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TensorBytes {
    /// Their role.
    pub class: Class,
    /// The layer, or none for tensors outside the layers.
    pub layer: Option<u32>,
    /// Parameters, all experts and copies together.
    pub params: u64,
    /// Exact bytes.
    pub bytes: Bytes,
}

impl ImportedGguf {
    /// Bytes of all weights of the decoder.
    pub fn weight_bytes(&self) -> Bytes {
        self.weights.iter().map(|weights| weights.bytes).sum()
    }

    /// The weights as a format with the exact bits of every tensor of the file, for a deployment of the imported model.
    ///
    /// # Errors
    /// [`FileTensorsError`] if the bytes are none that weights can have.
    pub fn weight_format(&self) -> Result<WeightFormat, FileTensorsError> {
        let name =
            self.model.native_format.as_deref().map_or_else(|| self.model.slug.clone(), |mix| format!("{mix} file"));
        let tensors = self.weights.iter().map(|of| (of.class, of.layer.unwrap_or(0), of.params, of.bytes));
        WeightFormat::from_tensors(name, tensors)
    }

    /// Average bits per parameter over all weights.
    pub fn bits_per_weight(&self) -> f64 {
        self.weight_bytes().as_bytes() * 8.0 / self.model.params_total() as f64
    }
}

/// What accumulates while the tensors are taken apart.
#[derive(Default)]
struct Account {
    sums: BTreeMap<(Option<u32>, Class), (u64, u64)>,
    mtp_params: u64,
    mtp_bytes: u64,
    other_bytes: u64,
    lookup_params: u64,
    vector_params: u64,
    global_linears: Vec<Linear>,
    unknown: Vec<String>,
}

impl Header {
    /// The model that the file holds: its layers from the shapes of tensors and the keys of its architecture.
    ///
    /// An architecture that is not known is derived from its tensors if they have the usual names; the model's notes say so.
    /// Multi-token-prediction modules, and vision towers that some tools store in the same file, are not part of the model.
    ///
    /// # Errors
    /// [`ImportError::Missing`] and [`ImportError::Invalid`] for keys, [`ImportError::MissingParts`] for one file of a
    /// split model, [`ImportError::UnknownArchitecture`] and [`ImportError::Inconsistent`] for tensors that are not understood
    /// or contradict the keys. No model is returned whose parameters are not exactly the elements of the tensors.
    pub fn model(&self) -> Result<ImportedGguf, ImportError> {
        if let Some((number, count)) = self.split_place()?.filter(|&(_, count)| count != self.files) {
            let missing = (0..count).filter(|&part| part != number).map(|part| part + 1).collect();
            return Err(ImportError::MissingParts { file: self.file.clone(), missing, count });
        }
        let architecture = self.get("general.architecture").and_then(Value::as_str);
        let architecture =
            architecture.ok_or_else(|| self.wrong_type("general.architecture", "the name of an architecture"))?;
        let keys = Keys { header: self, architecture };
        if let Some(reason) = not_a_decoder(architecture) {
            return Err(self.unknown_architecture(architecture, reason.into()));
        }

        let blocks = keys.required("block_count", LAYER_LIMIT)?;
        let mtp_modules = keys.optional("nextn_predict_layers", blocks - 1)?.unwrap_or(0);
        let layers = (blocks - mtp_modules) as usize;
        let hidden_size = keys.required("embedding_length", WIDTH_LIMIT)?;
        let max_context = keys.required("context_length", 1 << 40)?;
        let windows = Windows::read(&keys, layers)?;

        let mut account = Account::default();
        let views = self.sort_tensors(layers, blocks, &mut account)?;
        let (vocab_size, tied) = self.embeddings(hidden_size)?;
        let built = build_layers(&views, &keys, &windows, hidden_size, &mut account)?;
        if !account.unknown.is_empty() {
            return Err(self.not_understood(architecture, &account.unknown));
        }

        let named = built.into_iter().map(|built| (built.name, built.layer));
        let mut shape = Architecture::from_layers(hidden_size, vocab_size, max_context, named);
        shape.tied_embeddings = tied;
        shape.lookup_params = account.lookup_params;
        shape.vector_params = account.vector_params;
        shape.global_linears = std::mem::take(&mut account.global_linears);
        if mtp_modules > 0 && account.mtp_params > 0 {
            let params_per_module = account.mtp_params.div_ceil(mtp_modules);
            shape.mtp = Some(MtpModules { modules: mtp_modules, params_per_module });
        }
        let shape = shape.checked().map_err(|error| ImportError::Model { file: self.file.clone(), error })?;
        account.check_total(self, &shape)?;
        let model = self.describe(architecture, shape, &windows);
        Ok(account.finish(model))
    }

    /// Sorts the tensors by layer and books those outside the layers.
    fn sort_tensors<'a>(
        &'a self,
        layers: usize,
        blocks: u64,
        account: &mut Account,
    ) -> Result<Vec<View<'a>>, ImportError> {
        let mut views: Vec<View<'a>> = (0..layers).map(|layer| View::new(self, layer)).collect();
        for tensor in &self.tensors {
            match layer_and_name(&tensor.name) {
                None => account.book_global(tensor),
                Some((layer, _)) if layer >= blocks => {
                    let what =
                        format!("tensor `{}` is of layer {layer}, there are {blocks} (block_count)", tensor.name);
                    return Err(self.inconsistent(what));
                }
                Some((layer, name)) => match views.get_mut(layer as usize) {
                    Some(view) => {
                        if !view.add(name, tensor) {
                            let what = format!("tensor `{}` occurs with and without `.weight`", tensor.name);
                            return Err(self.inconsistent(what));
                        }
                    }
                    None => account.book_mtp(tensor),
                },
            }
        }
        Ok(views)
    }

    /// Vocabulary, and whether the output head is the embedding table.
    fn embeddings(&self, hidden_size: u64) -> Result<(u64, bool), ImportError> {
        let find = |name: &str| self.tensors.iter().find(|tensor| tensor.name == name);
        let table = |tensor: &TensorInfo| {
            let [width, rows, rest @ ..] = tensor.dimensions;
            if width == hidden_size && rest == [1, 1] && rows <= WIDTH_LIMIT {
                return Ok(rows);
            }
            let (name, shape) = (&tensor.name, tensor.shape());
            Err(self
                .inconsistent(format!("tensor `{name}` has the shape {shape:?}, expected [{hidden_size}, vocabulary]")))
        };
        let Some(embedding) = find("token_embd.weight") else {
            return Err(self.inconsistent("tensor `token_embd.weight` is missing".into()));
        };
        let vocab_size = table(embedding)?;
        let Some(head) = find("output.weight") else { return Ok((vocab_size, true)) };
        if table(head)? != vocab_size {
            return Err(self.inconsistent("`output.weight` and `token_embd.weight` differ in shape".into()));
        }
        Ok((vocab_size, false))
    }

    fn describe(&self, architecture: &str, shape: Architecture, windows: &Windows) -> Model {
        let stem = || {
            let file = self.file.rsplit(['/', '\\']).next().unwrap_or(&self.file);
            file.trim_end_matches(".gguf").to_string()
        };
        let name = self.get("general.name").and_then(Value::as_str).map_or_else(stem, str::to_string);
        let mut model = Model::from_architecture(name, architecture, shape);
        model.native_format = self.file_type().map(|file_type| file_type.name().to_string());
        model.sources.push(format!("GGUF header of {}", self.file));
        model.notes.extend(windows.note.clone());
        if !ARCHITECTURES.contains(&architecture) {
            model
                .notes
                .push(format!("architecture `{architecture}` is not known, its layers are derived from tensor names"));
        }
        model
    }

    fn unknown_architecture(&self, name: &str, understood: String) -> ImportError {
        let nearest = nearest(name, ARCHITECTURES).map(str::to_string).filter(|near| near != name);
        ImportError::UnknownArchitecture { file: self.file.clone(), name: name.into(), understood, nearest }
    }

    fn not_understood(&self, architecture: &str, names: &[String]) -> ImportError {
        const SHOWN: usize = 8;
        let mut list = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        if names.len() > SHOWN {
            list.push_str(&format!(" and {} more", names.len() - SHOWN));
        }
        let what = format!("the role of these tensors is unknown: {list}");
        if ARCHITECTURES.contains(&architecture) {
            self.inconsistent(what)
        } else {
            self.unknown_architecture(architecture, what)
        }
    }
}

/// Why an architecture of llama.cpp is no decoder with a cache or state that can be described here.
fn not_a_decoder(architecture: &str) -> Option<&'static str> {
    Some(match architecture {
        "clip" => "it is a vision or audio projector that stands beside a model, not a model",
        "t5" | "t5encoder" => "encoder-decoder models are not supported",
        "wavtokenizer-dec" => "it is an audio codec, not a language model",
        "rwkv6" | "rwkv7" | "rwkv6qwen2" | "arwkv7" => "RWKV layers are not supported",
        _ if architecture.contains("bert") || architecture.contains("embedding") => "encoders are not supported",
        _ => return None,
    })
}

fn build_layers(
    views: &[View<'_>],
    keys: &Keys<'_>,
    windows: &Windows,
    hidden_size: u64,
    account: &mut Account,
) -> Result<Vec<BuiltLayer>, ImportError> {
    const COUNT: u64 = super::keys::COUNT_LIMIT;
    let heads = keys.per_layer("attention.head_count", views.len(), COUNT)?;
    let kv_heads = keys.per_layer("attention.head_count_kv", views.len(), COUNT)?;
    let has_windows = (0..views.len()).any(|layer| windows.reach(layer) != Reach::Full);
    let first_shared = first_shared_layer(keys, views.len())?;
    let at = |numbers: &Option<PerLayer>, layer| numbers.as_ref().map(|numbers| numbers.at(layer));

    let mut layers = Vec::new();
    for view in views {
        // Models found by architecture search may have layers with nothing in them.
        if view.is_empty() && keys.architecture != "deci" {
            return Err(view.error("no tensors"));
        }
        let attention = AttentionKeys {
            heads: at(&heads, view.layer),
            kv_heads: at(&kv_heads, view.layer),
            reach: windows.reach(view.layer),
            shared_kv: view.layer >= first_shared,
        };
        let mut built = layer::build(view, keys, &attention, hidden_size, has_windows)?;
        account.unknown.append(&mut built.unknown);
        account.other_bytes += built.other_bytes;
        account.lookup_params += built.unused;
        for claim in &built.claims {
            account.book(Some(view.layer as u32), *claim);
        }
        layers.push(built);
    }
    Ok(layers)
}

/// From this layer on the cache of an earlier layer is read.
fn first_shared_layer(keys: &Keys<'_>, layers: usize) -> Result<usize, ImportError> {
    let shared = keys.optional("attention.shared_kv_layers", layers as u64)?;
    Ok(match (shared, keys.architecture) {
        (Some(shared), _) => layers - shared as usize,
        // Source: `n_layer_kv_from_start` in llama.cpp `src/models/gemma3n.cpp`.
        (None, "gemma3n") => 20,
        _ => layers,
    })
}

impl Account {
    fn book(&mut self, layer: Option<u32>, claim: Claim) {
        let (params, bytes) = self.sums.entry((layer, claim.class)).or_default();
        *params = params.saturating_add(claim.params);
        *bytes = bytes.saturating_add(claim.bytes);
    }

    fn book_mtp(&mut self, tensor: &TensorInfo) {
        self.mtp_params = self.mtp_params.saturating_add(tensor.elements);
        self.mtp_bytes = self.mtp_bytes.saturating_add(tensor.bytes);
    }

    fn book_global(&mut self, tensor: &TensorInfo) {
        let name = short_name(&tensor.name);
        let beside = ["v.", "a.", "mm.", "resampler."].iter().any(|prefix| name.starts_with(prefix));
        if beside || claims::is_table(name) {
            self.other_bytes = self.other_bytes.saturating_add(tensor.bytes);
            return;
        }
        let class = match name {
            "token_embd" => Class::TokenEmbedding,
            "output" => Class::LmHead,
            "position_embd" | "token_types" | "per_layer_token_embd" => Class::LookupTable,
            "altup_proj" | "altup_unembd_proj" | "per_layer_model_proj" => Class::OtherMatrix,
            _ if claims::is_vector(name) => Class::Vector,
            _ => return self.unknown.push(tensor.name.clone()),
        };
        match class {
            Class::LookupTable => self.lookup_params = self.lookup_params.saturating_add(tensor.elements),
            Class::Vector => self.vector_params = self.vector_params.saturating_add(tensor.elements),
            Class::OtherMatrix => {
                let [in_features, out_features, copies, more] = tensor.dimensions;
                let copies = copies.saturating_mul(more);
                self.global_linears.push(Linear { class, in_features, out_features, copies, split: Split::Replicated });
            }
            _ => {}
        }
        self.book(None, Claim::whole(class, tensor));
    }

    /// Refuses a model that does not account for every weight.
    fn check_total(&self, header: &Header, shape: &Architecture) -> Result<(), ImportError> {
        let held: u128 = self.sums.values().map(|&(params, _)| u128::from(params)).sum();
        // Beyond this, products of the shape could overflow; the largest models have 2^42 parameters.
        if held > 1 << 60 {
            return Err(header.inconsistent(format!("the tensors hold {held} weights, the limit is 2^60")));
        }
        let described = u128::from(shape.params_total());
        if held != described {
            return Err(
                header.inconsistent(format!("the tensors hold {held} weights, the layers describe {described}"))
            );
        }
        Ok(())
    }

    fn finish(self, model: Model) -> ImportedGguf {
        let bytes = |bytes: u64| Bytes::from_bytes(bytes as f64);
        let weights = self.sums.iter().map(|(&(layer, class), &(params, size))| TensorBytes {
            class,
            layer,
            params,
            bytes: bytes(size),
        });
        ImportedGguf {
            model,
            weights: weights.collect(),
            mtp_bytes: bytes(self.mtp_bytes),
            other_bytes: bytes(self.other_bytes),
        }
    }
}
