//! Text, to be continued by a language model.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Dataset;
use crate::error::{Error, Result};

/// A text, cut into windows of tokens: inputs are i64 `[length]`, and the target at each place is the token that follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// The file.
    pub file: PathBuf,
    /// What a token is; a byte.
    #[serde(default)]
    pub tokens: Tokens,
    /// Tokens in an example; 64.
    #[serde(default = "usual_length")]
    pub length: usize,
    /// Tokens between the beginnings of two examples; as many as an example has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<usize>,
    /// All characters that may occur, in the order of their indices, where tokens are characters; those in the file, sorted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub characters: Option<String>,
}

fn usual_length() -> usize {
    64
}

/// What a token of a text is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Tokens {
    /// A byte: 256 tokens, for any file.
    #[default]
    Bytes,
    /// A character of a text in UTF-8.
    Chars,
}

/// What the indices of a language model mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Vocabulary {
    /// Index i is byte i: 256 tokens.
    Bytes,
    /// Index i is character i of this text.
    Chars(String),
}

impl Text {
    /// A text of bytes, in windows of 64.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Text { file: file.into(), tokens: Tokens::Bytes, length: usual_length(), stride: None, characters: None }
    }

    /// Tokens are bytes.
    pub fn bytes(self) -> Self {
        Text { tokens: Tokens::Bytes, ..self }
    }

    /// Tokens are characters.
    pub fn chars(self) -> Self {
        Text { tokens: Tokens::Chars, ..self }
    }

    /// Sets [`length`](Text::length).
    pub fn length(self, length: usize) -> Self {
        Text { length, ..self }
    }

    /// Sets [`stride`](Text::stride).
    pub fn stride(self, stride: usize) -> Self {
        Text { stride: Some(stride), ..self }
    }

    /// Sets [`characters`](Text::characters).
    pub fn characters(self, characters: impl Into<String>) -> Self {
        Text { characters: Some(characters.into()), ..self }
    }

    /// The vocabulary, where it is known without reading the file.
    pub fn vocabulary(&self) -> Option<Vocabulary> {
        match self.tokens {
            Tokens::Bytes => Some(Vocabulary::Bytes),
            Tokens::Chars => self.characters.clone().map(Vocabulary::Chars),
        }
    }

    /// The windows of the text with the tokens that follow.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported): not written yet.
    pub fn read(&self) -> Result<Dataset> {
        Err(Error::unsupported("the reader of text is not written yet"))
    }

    /// As [`read`](Text::read), without targets.
    ///
    /// # Errors
    /// As [`read`](Text::read).
    pub fn read_inputs(&self) -> Result<Dataset> {
        self.read()
    }

    /// These options with the characters that were found in the file. `dataset` is what [`read`](Text::read) returned, or a
    /// part.
    pub fn found(&self, _dataset: &Dataset) -> Text {
        self.clone()
    }
}

impl Vocabulary {
    /// How many tokens there are.
    pub fn size(&self) -> usize {
        match self {
            Vocabulary::Bytes => 256,
            Vocabulary::Chars(characters) => characters.chars().count(),
        }
    }

    /// The indices of a text.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) with line and column for a character that is not in the vocabulary.
    pub fn encode(&self, _text: &str) -> Result<Vec<i64>> {
        Err(Error::unsupported("the vocabulary is not written yet"))
    }

    /// The text of indices; bytes that are no UTF-8 become `U+FFFD`.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](crate::ErrorKind::Data) for an index that the vocabulary does not have.
    pub fn decode(&self, _indices: &[i64]) -> Result<String> {
        Err(Error::unsupported("the vocabulary is not written yet"))
    }
}
