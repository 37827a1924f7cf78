//! Reading the bytes of a header. Counts and lengths in a file are claims: memory is taken only for bytes that were read.

use super::value::{Array, Value, ValueType};
use super::{Header, TensorInfo};
use crate::format::GgufType;
use crate::import::ImportError;
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read};

/// Longest key. Source: GGUF specification, `gguf_string_t key` at most 2^16 - 1 bytes.
const KEY_LIMIT: u64 = (1 << 16) - 1;
/// Longest tensor name. The specification says 64; forks use longer ones.
const NAME_LIMIT: u64 = 1 << 10;
/// Most dimensions. Source: `GGML_MAX_DIMS` in llama.cpp.
const DIMENSION_LIMIT: u32 = 4;
/// Lists within lists deeper than this are refused; no known key nests more than twice.
const NESTING_LIMIT: u32 = 16;
/// Weights of one tensor beyond this are refused, so that sums over tensors cannot overflow.
const ELEMENT_LIMIT: u64 = 1 << 44;
/// Name length, dimension count, type and offset of a tensor without name and dimensions.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;
/// Key length and type of a value, and the shortest value.
const MIN_PAIR_BYTES: u64 = 8 + 4 + 1;
/// Source: `GGUF_DEFAULT_ALIGNMENT` of gguf-py 0.19.0.
const DEFAULT_ALIGNMENT: u64 = 32;

/// Reads a header; `len` is how many bytes the file has, where that is known.
pub(super) fn header<R: Read>(reader: R, file: &str, len: Option<u64>) -> Result<Header, ImportError> {
    let mut source = Source { reader, file, offset: 0, len };
    let version = source.version()?;
    let n_tensors = source.u64("the number of tensors")?;
    let n_pairs = source.u64("the number of metadata keys")?;
    source.room(n_pairs, MIN_PAIR_BYTES, "metadata keys")?;
    source.room(n_tensors, MIN_TENSOR_BYTES, "tensors")?;

    let mut metadata = BTreeMap::new();
    for _ in 0..n_pairs {
        let start = source.offset;
        let key = source.string("a metadata key", KEY_LIMIT)?;
        let value = source.value(&key)?;
        if metadata.contains_key(&key) {
            return Err(source.at(start, format!("key `{key}` occurs twice")));
        }
        metadata.insert(key, value);
    }
    let alignment = alignment(&metadata, file)?;

    let mut tensors = Vec::new();
    let mut starts = Vec::new();
    for _ in 0..n_tensors {
        starts.push(source.offset);
        tensors.push(source.tensor(alignment)?);
    }
    let mut names = HashSet::new();
    for (tensor, &start) in tensors.iter().zip(&starts) {
        if !names.insert(tensor.name.as_str()) {
            return Err(source.at(start, format!("tensor `{}` occurs twice", tensor.name)));
        }
    }
    let data_offset = source.offset.checked_next_multiple_of(alignment);
    let data_end = tensors.iter().try_fold(0u64, |end, tensor| Some(end.max(tensor.offset.checked_add(tensor.bytes)?)));
    let (Some(data_offset), Some(data_end)) = (data_offset, data_end) else {
        return Err(source.error("tensor offsets reach beyond 2^64 bytes"));
    };
    let Some(expected) = data_offset.checked_add(data_end) else {
        return Err(source.error("tensor offsets reach beyond 2^64 bytes"));
    };
    Ok(Header {
        file: file.to_string(),
        version,
        alignment,
        data_offset,
        missing_bytes: len.map_or(0, |len| expected.saturating_sub(len)),
        files: 1,
        metadata,
        tensors,
    })
}

fn alignment(metadata: &BTreeMap<String, Value>, file: &str) -> Result<u64, ImportError> {
    const KEY: &str = "general.alignment";
    match metadata.get(KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(Value::Unsigned(bytes)) if bytes.is_power_of_two() && *bytes <= 1 << 30 => Ok(*bytes),
        Some(other) => Err(ImportError::Invalid {
            file: file.into(),
            line: None,
            key: KEY.into(),
            found: other.to_string(),
            expected: "a power of two up to 2^30 bytes".into(),
        }),
    }
}

struct Source<'a, R> {
    reader: R,
    file: &'a str,
    offset: u64,
    len: Option<u64>,
}

impl<R: Read> Source<'_, R> {
    fn at(&self, offset: u64, what: impl Into<String>) -> ImportError {
        ImportError::Gguf { file: self.file.into(), offset, what: what.into() }
    }

    fn error(&self, what: impl Into<String>) -> ImportError {
        self.at(self.offset, what)
    }

    fn io(&self, error: &io::Error, what: &str) -> ImportError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.error(format!("the file ends within {what}")),
            _ => ImportError::Io { file: self.file.into(), message: error.to_string() },
        }
    }

    /// Refuses a count whose items cannot fit into what is left of the file.
    fn room(&self, count: u64, min_bytes: u64, what: &str) -> Result<(), ImportError> {
        let needed = u128::from(count) * u128::from(min_bytes);
        match self.len.map(|len| len.saturating_sub(self.offset)) {
            Some(left) if needed > u128::from(left) => Err(self.error(format!(
                "the file claims {count} {what}, which take at least {needed} bytes, but only {left} bytes are left"
            ))),
            _ => Ok(()),
        }
    }

    fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N], ImportError> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).map_err(|error| self.io(&error, what))?;
        self.offset += N as u64;
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32, ImportError> {
        self.bytes(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, ImportError> {
        self.bytes(what).map(u64::from_le_bytes)
    }

    fn version(&mut self) -> Result<u32, ImportError> {
        let magic: [u8; 4] = self.bytes("the magic number")?;
        if &magic != b"GGUF" {
            let hint = match &magic {
                b"tjgg" | b"lmgg" | b"fmgg" | b"algg" => " (a GGML file from before GGUF: convert it)",
                _ => "",
            };
            return Err(self.at(0, format!("the file starts with bytes {magic:02x?}, expected \"GGUF\"{hint}")));
        }
        let version = self.u32("the version")?;
        match version {
            2 | 3 => Ok(version),
            1 => Err(self.at(4, "GGUF version 1, expected 2 or 3: convert the model again")),
            _ if matches!(version.swap_bytes(), 1..=3) => {
                Err(self.at(4, "the file is big-endian, expected little-endian: convert it (gguf-convert-endian)"))
            }
            _ => Err(self.at(4, format!("GGUF version {version}, expected 2 or 3"))),
        }
    }

    fn string(&mut self, what: &str, limit: u64) -> Result<String, ImportError> {
        let start = self.offset;
        let len = self.u64(what)?;
        if len > limit {
            return Err(self.at(start, format!("{what} has {len} bytes, the limit is {limit}")));
        }
        self.room(len, 1, &format!("bytes for {what}"))?;
        let mut bytes = Vec::new();
        let read = (&mut self.reader).take(len).read_to_end(&mut bytes).map_err(|error| self.io(&error, what))?;
        if (read as u64) < len {
            return Err(self.error(format!("the file ends within {what}")));
        }
        self.offset += len;
        bytes.shrink_to_fit();
        String::from_utf8(bytes).map_err(|_| self.at(start, format!("{what} is not UTF-8")))
    }

    fn skip(&mut self, len: u64, what: &str) -> Result<(), ImportError> {
        self.room(len, 1, &format!("bytes for {what}"))?;
        let skipped = io::copy(&mut (&mut self.reader).take(len), &mut io::sink());
        if skipped.map_err(|error| self.io(&error, what))? < len {
            return Err(self.error(format!("the file ends within {what}")));
        }
        self.offset += len;
        Ok(())
    }

    fn value_type(&mut self, key: &str) -> Result<ValueType, ImportError> {
        let start = self.offset;
        let id = self.u32(&format!("the type of key `{key}`"))?;
        ValueType::from_id(id)
            .ok_or_else(|| self.at(start, format!("key `{key}` has a value of type {id}, the types end at 12")))
    }

    fn value(&mut self, key: &str) -> Result<Value, ImportError> {
        let kind = self.value_type(key)?;
        let what = format!("the value of key `{key}`");
        match kind {
            ValueType::String => self.string(&what, u64::MAX).map(Value::String),
            ValueType::Array => self.array(key, &what, 1).map(Value::Array),
            scalar => self.scalar(scalar, &what),
        }
    }

    fn scalar(&mut self, kind: ValueType, what: &str) -> Result<Value, ImportError> {
        Ok(match kind {
            ValueType::U8 => Value::Unsigned(u8::from_le_bytes(self.bytes(what)?).into()),
            ValueType::I8 => Value::Signed(i8::from_le_bytes(self.bytes(what)?).into()),
            ValueType::U16 => Value::Unsigned(u16::from_le_bytes(self.bytes(what)?).into()),
            ValueType::I16 => Value::Signed(i16::from_le_bytes(self.bytes(what)?).into()),
            ValueType::U32 => Value::Unsigned(u32::from_le_bytes(self.bytes(what)?).into()),
            ValueType::I32 => Value::Signed(i32::from_le_bytes(self.bytes(what)?).into()),
            ValueType::U64 => Value::Unsigned(self.u64(what)?),
            ValueType::I64 => Value::Signed(i64::from_le_bytes(self.bytes(what)?)),
            ValueType::F32 => Value::Float(f32::from_le_bytes(self.bytes(what)?).into()),
            ValueType::F64 => Value::Float(f64::from_le_bytes(self.bytes(what)?)),
            ValueType::Bool => match self.bytes(what)? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                [byte] => return Err(self.error(format!("{what} is the truth value {byte}, expected 0 or 1"))),
            },
            ValueType::String | ValueType::Array => {
                return Err(self.error(format!("{what} is a {}, expected a number", kind.name())));
            }
        })
    }

    fn array(&mut self, key: &str, what: &str, depth: u32) -> Result<Array, ImportError> {
        if depth > NESTING_LIMIT {
            return Err(self.error(format!("{what} nests arrays deeper than the limit of {NESTING_LIMIT}")));
        }
        let element = self.value_type(key)?;
        let len = self.u64(what)?;
        self.room(len, element.min_bytes(), &format!("elements for {what}"))?;
        let mut counts = None;
        match element {
            ValueType::String => {
                for _ in 0..len {
                    let bytes = self.u64(what)?;
                    self.skip(bytes, what)?;
                }
            }
            ValueType::Array => {
                for _ in 0..len {
                    self.array(key, what, depth + 1)?;
                }
            }
            ValueType::F32 | ValueType::F64 => self.skip_numbers(element, len, what)?,
            _ if depth > 1 || len > Array::STORED => self.skip_numbers(element, len, what)?,
            _ => counts = self.counts(element, len, what)?,
        }
        Ok(Array { element, len, counts })
    }

    fn skip_numbers(&mut self, element: ValueType, len: u64, what: &str) -> Result<(), ImportError> {
        match len.checked_mul(element.min_bytes()) {
            Some(bytes) => self.skip(bytes, what),
            None => Err(self.error(format!("{what} claims {len} elements, more than 2^64 bytes"))),
        }
    }

    /// The numbers of a short list, or `None` if one is negative.
    fn counts(&mut self, element: ValueType, len: u64, what: &str) -> Result<Option<Vec<u64>>, ImportError> {
        let mut counts = Some(Vec::new());
        for _ in 0..len {
            let count = match self.scalar(element, what)? {
                Value::Bool(flag) => Some(flag.into()),
                value => value.as_count(),
            };
            match (count, &mut counts) {
                (Some(count), Some(counts)) => counts.push(count),
                _ => counts = None,
            }
        }
        Ok(counts)
    }

    fn tensor(&mut self, alignment: u64) -> Result<TensorInfo, ImportError> {
        let start = self.offset;
        let name = self.string("a tensor name", NAME_LIMIT)?;
        let what = format!("the entry of tensor `{name}`");
        let wrong = |this: &Self, problem: String| this.at(start, format!("tensor `{name}` {problem}"));

        let n_dimensions = self.u32(&what)?;
        if n_dimensions > DIMENSION_LIMIT {
            return Err(wrong(self, format!("has {n_dimensions} dimensions, the limit is {DIMENSION_LIMIT}")));
        }
        let mut dimensions = [1u64; DIMENSION_LIMIT as usize];
        let mut elements: u64 = 1;
        for dimension in dimensions.iter_mut().take(n_dimensions as usize) {
            *dimension = self.u64(&what)?;
            match elements.checked_mul(*dimension) {
                Some(product @ 1..=ELEMENT_LIMIT) => elements = product,
                Some(0) => return Err(wrong(self, "has a dimension of 0".into())),
                _ => return Err(wrong(self, format!("has more than the limit of {ELEMENT_LIMIT} weights"))),
            }
        }
        let id = self.u32(&what)?;
        let offset = self.u64(&what)?;
        let Some(kind) = GgufType::from_id(id) else {
            return Err(wrong(self, format!("has the unknown type {id}{}", removed_type_hint(id))));
        };
        let row = dimensions[0];
        if row % kind.block_size() != 0 {
            let (kind, block) = (kind.name(), kind.block_size());
            return Err(wrong(
                self,
                format!("has rows of {row} weights, not a multiple of the block of {kind}: {block}"),
            ));
        }
        if offset % alignment != 0 {
            return Err(wrong(
                self,
                format!("starts at offset {offset}, not a multiple of the alignment of {alignment}"),
            ));
        }
        // At most 2^44 elements of 8 bytes.
        let bytes = elements / kind.block_size() * kind.block_bytes();
        Ok(TensorInfo { name, dimensions, n_dimensions, kind, elements, bytes, offset })
    }
}

/// Why a number is none of the tensor types, for error messages.
const fn removed_type_hint(id: u32) -> &'static str {
    match id {
        4 | 5 | 31..=33 | 36..=38 => " (removed from GGML: convert the model again)",
        _ => "",
    }
}
