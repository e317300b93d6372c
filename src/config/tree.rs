//! A parsed file in which every key and value knows its place among all files of a load.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// A place: bytes of one file, counted over all files of a load; see [`super::files`].
pub(super) type Span = Range<usize>;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Val,
    pub(super) span: Span,
}

/// A value as written.
#[derive(Debug, Clone)]
pub(super) enum Val {
    Text(String),
    Integer { digits: String, radix: u32 },
    Float(String),
    Boolean(bool),
    Datetime,
    Array(Vec<Node>),
    Table(Table),
}

/// The pairs of a table.
#[derive(Debug, Clone, Default)]
pub(super) struct Table(pub(super) Vec<Pair>);

/// A key with its value.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    pub(super) key: String,
    pub(super) key_span: Span,
    pub(super) node: Node,
}

impl Table {
    /// Takes over what the parser found in a file that begins at `base`.
    pub(super) fn new(table: &DeTable<'_>, base: usize) -> Self {
        Self(
            table
                .iter()
                .map(|(key, value)| Pair {
                    key: key.get_ref().to_string(),
                    key_span: shift(key.span(), base),
                    node: Node::new(value, base),
                })
                .collect(),
        )
    }
}

impl Node {
    fn new(value: &toml::Spanned<DeValue<'_>>, base: usize) -> Self {
        let val = match value.get_ref() {
            DeValue::String(text) => Val::Text(text.to_string()),
            DeValue::Integer(number) => Val::Integer {
                digits: number.as_str().to_owned(),
                radix: number.radix(),
            },
            DeValue::Float(number) => Val::Float(number.as_str().to_owned()),
            DeValue::Boolean(flag) => Val::Boolean(*flag),
            DeValue::Datetime(_) => Val::Datetime,
            DeValue::Array(items) => {
                Val::Array(items.iter().map(|item| Self::new(item, base)).collect())
            }
            DeValue::Table(table) => Val::Table(Table::new(table, base)),
        };
        Self {
            value: val,
            span: shift(value.span(), base),
        }
    }
}

impl Val {
    /// The type as a message names it.
    pub(super) fn noun(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Integer { .. } => "integer",
            Self::Float(_) => "float",
            Self::Boolean(_) => "boolean",
            Self::Datetime => "datetime",
            Self::Array(_) => "array",
            Self::Table(_) => "table",
        }
    }
}

fn shift(span: Range<usize>, base: usize) -> Span {
    span.start + base..span.end + base
}
