//! GGUF files (llama.cpp, Ollama, LM Studio): the model's shape and the exact size of its weights, from the header alone.
//!
//! A header lists metadata keys and, for every tensor, its name, dimensions and type. That is enough to know every layer and
//! the bytes that it takes; the weights themselves are never read, and a file cut off after its header is as good as a whole one.
//!
//! Source: GGUF specification (ggml `docs/gguf.md`); keys and tensor names as in llama.cpp `gguf-py/gguf/constants.py`.

mod claims;
mod keys;
mod layer;
mod mixer;
mod model;
mod parse;
mod split;
mod value;
mod windows;

pub use model::{ImportedGguf, TensorBytes};
pub use value::{Array, Value, ValueType};

use super::ImportError;
use crate::format::{GgufFileType, GgufType};
use crate::units::Bytes;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// The header of a GGUF file, or of all files of a split model.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    file: String,
    version: u32,
    alignment: u64,
    data_offset: u64,
    missing_bytes: u64,
    files: u64,
    metadata: BTreeMap<String, Value>,
    tensors: Vec<TensorInfo>,
}

/// What a header says of one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    name: String,
    dimensions: [u64; 4],
    n_dimensions: u32,
    kind: GgufType,
    elements: u64,
    bytes: u64,
    offset: u64,
}

impl Header {
    /// Reads the header at the start of these bytes; what follows it may be missing.
    ///
    /// # Errors
    /// [`ImportError::Gguf`] with the offset of the byte and [`ImportError::Invalid`] for a bad alignment. Never more
    /// memory is taken than a small multiple of the bytes given, whatever counts and lengths they claim.
    ///
    /// # Examples
    /// ```
    /// use llm_roofline::import::gguf::Header;
    ///
    /// let mut file = b"GGUF".to_vec();
    /// file.extend(3u32.to_le_bytes()); // version
    /// file.extend(0u64.to_le_bytes()); // tensors
    /// file.extend(1u64.to_le_bytes()); // keys
    /// file.extend(20u64.to_le_bytes());
    /// file.extend(b"general.architecture");
    /// file.extend(8u32.to_le_bytes()); // a string
    /// file.extend(5u64.to_le_bytes());
    /// file.extend(b"llama");
    /// let header = Header::read(&file)?;
    /// assert_eq!(header.get("general.architecture").and_then(|value| value.as_str()), Some("llama"));
    ///
    /// let error = Header::read(&file[..60]).unwrap_err();
    /// assert_eq!(error.to_string(), "GGUF, byte 56: the file ends within the value of key `general.architecture`");
    /// # Ok::<(), llm_roofline::import::ImportError>(())
    /// ```
    pub fn read(bytes: &[u8]) -> Result<Self, ImportError> {
        parse::header(bytes, "GGUF", Some(bytes.len() as u64))
    }

    /// Reads the header of a file.
    ///
    /// # Errors
    /// [`ImportError::Io`] if it cannot be opened, otherwise as [`Header::read`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ImportError> {
        let name = path.as_ref().display().to_string();
        let io = |error: std::io::Error| ImportError::Io { file: name.clone(), message: error.to_string() };
        let file = File::open(&path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        parse::header(BufReader::new(file), &name, Some(len))
    }

    /// Reads a header from a stream, and nothing behind it. `file_len` is the length of the whole file, where it is known;
    /// `name` stands for the file in errors.
    ///
    /// # Errors
    /// As [`Header::read`].
    pub fn from_reader(reader: impl Read, name: &str, file_len: Option<u64>) -> Result<Self, ImportError> {
        parse::header(reader, name, file_len)
    }

    /// The file, or what stands for it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Version of the format: 2 or 3.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// Every tensor starts at a multiple of so many bytes.
    pub const fn alignment(&self) -> Bytes {
        Bytes::from_bytes(self.alignment as f64)
    }

    /// Where tensor data starts in the (first) file.
    pub const fn data_offset(&self) -> Bytes {
        Bytes::from_bytes(self.data_offset as f64)
    }

    /// Bytes by which the file is shorter than its header says: 0 for a whole file, more for a broken download or a header alone.
    pub const fn missing_bytes(&self) -> Bytes {
        Bytes::from_bytes(self.missing_bytes as f64)
    }

    /// A metadata value.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// All metadata, by key.
    pub const fn metadata(&self) -> &BTreeMap<String, Value> {
        &self.metadata
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Bytes of all tensors, padding between them not counted.
    pub fn tensor_bytes(&self) -> Bytes {
        self.tensors.iter().map(TensorInfo::bytes).sum()
    }

    /// The quantization mix that the file says it is (`general.file_type`), such as `Q4_K_M`.
    pub fn file_type(&self) -> Option<GgufFileType> {
        let id = self.get("general.file_type").and_then(Value::as_count)?;
        u32::try_from(id).ok().and_then(GgufFileType::from_id)
    }
}

impl TensorInfo {
    /// Name, such as `blk.0.attn_q.weight`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Dimensions, the contiguous one (input features) first.
    pub fn shape(&self) -> &[u64] {
        self.dimensions.get(..self.n_dimensions as usize).unwrap_or(&self.dimensions)
    }

    /// Type, such as `Q4_K`.
    pub const fn type_name(&self) -> &'static str {
        self.kind.name()
    }

    /// Number of weights.
    pub const fn elements(&self) -> u64 {
        self.elements
    }

    /// Exact size: `elements / block * bytes per block`.
    pub const fn bytes(&self) -> Bytes {
        Bytes::from_bytes(self.bytes as f64)
    }

    /// Where its data starts, from the start of the data of its file.
    pub const fn offset(&self) -> Bytes {
        Bytes::from_bytes(self.offset as f64)
    }
}
