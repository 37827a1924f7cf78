//! Metadata values.

use std::fmt;

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// An unsigned integer of any width.
    Unsigned(u64),
    /// A signed integer of any width.
    Signed(i64),
    /// A float of any width.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    String(String),
    /// A list; long lists and lists of text are only counted.
    Array(Array),
}

/// A list in the metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Array {
    /// Type of its elements.
    pub element: ValueType,
    /// How many elements it has.
    pub len: u64,
    /// The elements, if they are at most [`Array::STORED`] integers or truth values, none of them negative.
    pub counts: Option<Vec<u64>>,
}

impl Array {
    /// Longest list whose elements are kept: enough for a number per layer, far too few for a vocabulary.
    pub const STORED: u64 = 1024;
}

/// The types of values, numbered as in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ValueType {
    /// 8-bit unsigned integer.
    U8 = 0,
    /// 8-bit signed integer.
    I8 = 1,
    /// 16-bit unsigned integer.
    U16 = 2,
    /// 16-bit signed integer.
    I16 = 3,
    /// 32-bit unsigned integer.
    U32 = 4,
    /// 32-bit signed integer.
    I32 = 5,
    /// 32-bit float.
    F32 = 6,
    /// Truth value, one byte.
    Bool = 7,
    /// Text, with its length before it.
    String = 8,
    /// List.
    Array = 9,
    /// 64-bit unsigned integer.
    U64 = 10,
    /// 64-bit signed integer.
    I64 = 11,
    /// 64-bit float.
    F64 = 12,
}

impl ValueType {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    pub(super) fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// Bytes of one value; for text and lists, of the shortest one.
    pub(super) const fn min_bytes(self) -> u64 {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::String => 8,
            Self::Array => 12,
        }
    }

    /// The name, as in the GGUF specification but short.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }
}

impl Value {
    /// The value as a count, if it is a whole number that is not negative. (Some tools write counts as floats.)
    pub fn as_count(&self) -> Option<u64> {
        const EXACT: f64 = (1u64 << 53) as f64;
        match *self {
            Self::Float(value) if value.fract() == 0.0 && (0.0..=EXACT).contains(&value) => Some(value as u64),
            Self::Unsigned(value) => Some(value),
            Self::Signed(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    /// The value as text, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }
}

/// What it is, in a few words, for error messages.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Signed(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "the float {value}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::String(text) if text.chars().count() <= 40 => write!(f, "the text {text:?}"),
            Self::String(text) => write!(f, "a text of {} bytes", text.len()),
            Self::Array(array) => write!(f, "an array of {} {}", array.len, array.element.name()),
        }
    }
}
