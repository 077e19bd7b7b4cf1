//! Text for language models.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
};

use precast::{
    error::{Error, Result},
    options::{Options, options},
};
use precast_base::{files, formats::Reader, printable};
use serde::{Deserialize, Serialize};

use super::{MOST_BYTES, MOST_TOKENS, charset, check_format, lines::end_of};
use crate::data::{Dataset, Inputs, Targets};

/// A text cut into windows of tokens: inputs are i64 `[length]`, and the target at each position is the next token.
#[options(written)]
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// The file.
    pub file: PathBuf,
    /// Kind of token.
    #[option(default = Tokens::Bytes, no_setter)]
    pub tokens: Tokens,
    /// Number of tokens in an example.
    #[option(default = 64, at_least = 1)]
    pub length: usize,
    /// Number of tokens between the starts of two examples. Windows of a shorter stride overlap: a run on them needs
    /// `split: in_order`.
    #[option(default = None, shown = "the length of an example", at_least = 1)]
    pub stride: Option<usize>,
    /// Encoding of the file, by its name in the Encoding Standard, for tokens that are characters.
    #[option(default = None, shown = "UTF-8, or UTF-16 if the file begins so", left_out)]
    pub encoding: Option<String>,
    /// All characters that may occur, in the order of their indices, for tokens that are characters.
    #[option(default = None, shown = "those in the file, sorted")]
    pub characters: Option<String>,
}

/// Kind of token of a text.
#[options]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tokens {
    /// A byte: 256 tokens, for any file.
    #[default]
    Bytes,
    /// A character of a UTF-8 text.
    Chars,
}

/// Meaning of the indices of a language model.
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
    /// Uses bytes as tokens.
    pub fn bytes(self) -> Self {
        Text { tokens: Tokens::Bytes, ..self }
    }

    /// Uses characters as tokens.
    pub fn chars(self) -> Self {
        Text { tokens: Tokens::Chars, ..self }
    }

    /// Returns the vocabulary, if it is known without reading the file.
    pub fn vocabulary(&self) -> Option<Vocabulary> {
        match self.tokens {
            Tokens::Bytes => Some(Vocabulary::Bytes),
            Tokens::Chars => self.characters.clone().map(Vocabulary::Chars),
        }
    }

    /// Reads the windows of the text, each with its next tokens. An incomplete window at the end is dropped. The names
    /// of the classes are the tokens.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](precast::ErrorKind::Io) when the file cannot be read or is longer than 1 GiB, and as
    /// [`parse`](Text::parse).
    pub fn read(&self) -> Result<Dataset> {
        self.parse(&files::read_within(&self.file, MOST_BYTES)?)
    }

    /// Parses the bytes of the file as [`read`](Text::read) does.
    ///
    /// ```
    /// # use precast_train::data::Text;
    /// let text = Text::new("abc.txt").chars().length(2);
    /// let data = text.parse(b"abcabc")?; // ab -> bc, ca -> ab
    /// assert_eq!((data.len(), data.labels()), (2, &[1, 2, 0, 1][..]));
    /// let vocabulary = text.found(&data).vocabulary().unwrap();
    /// assert_eq!(vocabulary.decode(data.labels())?, "bcab");
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for a length or a stride of 0, or a duplicate given character,
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) when the text is shorter than an example and one token; when all
    /// examples have more than 2^27 tokens; and, for tokens that are characters, with file, line and column for bytes that are
    /// not in the [`encoding`](Text::encoding), or an unknown character.
    pub fn parse(&self, bytes: &[u8]) -> Result<Dataset> {
        let (tokens, vocabulary) = self.tokens_of(bytes)?;
        if tokens.len() <= self.length {
            return Err(Error::data(format!(
                "{}: {} tokens; an example of length {} needs one more than that",
                self.origin(),
                tokens.len(),
                self.length
            )));
        }
        let (inputs, following) = (&tokens[..tokens.len() - 1], &tokens[1..]);
        let targets = Targets::Classes { shape: vec![self.length], values: self.windows(following, self.length)? };
        let inputs = Inputs::Indices(self.windows(inputs, self.length)?);
        Dataset::of(inputs, &[self.length], targets)?.with_class_names(vocabulary.tokens())
    }

    /// Reads inputs as [`read`](Text::read) does, without targets. A text shorter than an example becomes one example
    /// of its own length.
    ///
    /// # Errors
    /// As [`read`](Text::read).
    pub fn read_inputs(&self) -> Result<Dataset> {
        let (tokens, _) = self.tokens_of(&files::read_within(&self.file, MOST_BYTES)?)?;
        if tokens.is_empty() {
            return Err(Error::data("the file is empty").in_file(self.origin()));
        }
        let length = self.length.min(tokens.len());
        Dataset::of(Inputs::Indices(self.windows(&tokens, length)?), &[length], Targets::None)
    }

    /// Returns these options with the characters found in the file. `dataset` is the result of [`read`](Text::read), or
    /// a part of it.
    pub fn found(&self, dataset: &Dataset) -> Text {
        match self.tokens {
            Tokens::Bytes => self.clone(),
            Tokens::Chars => self.clone().characters(dataset.class_names().concat()),
        }
    }

    /// Returns the number of windows after each with which it shares places of targets.
    pub(super) fn overlap(&self) -> usize {
        self.length.div_ceil(self.stride.unwrap_or(self.length).max(1)).saturating_sub(1)
    }

    /// Returns the file, as named in errors.
    fn origin(&self) -> String {
        printable(&self.file.display().to_string()).into_owned()
    }

    /// Returns the indices of all tokens of a file, and their vocabulary.
    fn tokens_of(&self, bytes: &[u8]) -> Result<(Vec<i64>, Vocabulary)> {
        self.check()?;
        let origin = self.origin();
        if let (Tokens::Bytes, Some(_)) = (self.tokens, &self.encoding) {
            let words = "`encoding` is for tokens that are characters, `tokens: chars`; bytes are read as they are";
            return Err(Error::value(words).about("encoding"));
        }
        if self.tokens == Tokens::Bytes {
            check_format(bytes, Reader::Text, &origin)?;
            return Ok((bytes.iter().map(|&byte| byte.into()).collect(), Vocabulary::Bytes));
        }
        let text = charset::text(bytes, self.encoding.as_deref(), &origin)?;
        check_format(text.as_bytes(), Reader::Text, &origin)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let found = || text.chars().collect::<BTreeSet<char>>().into_iter().collect();
        let vocabulary = Vocabulary::Chars(self.characters.clone().unwrap_or_else(found));
        Ok((vocabulary.indices(text, Some(&origin))?, vocabulary))
    }

    /// Returns the tokens of each example, concatenated.
    fn windows(&self, tokens: &[i64], length: usize) -> Result<Vec<i64>> {
        let stride = self.stride.unwrap_or(length);
        let examples = (tokens.len() - length) / stride + 1;
        if examples.checked_mul(length).is_none_or(|all| all > MOST_TOKENS) {
            return Err(Error::data(format!(
                "{}: {examples} examples of {length} tokens; allowed: {MOST_TOKENS} tokens in all examples",
                self.origin()
            )));
        }
        Ok(tokens.windows(length).step_by(stride).flatten().copied().collect())
    }
}

impl Vocabulary {
    /// Returns the number of tokens.
    pub fn size(&self) -> usize {
        match self {
            Vocabulary::Bytes => 256,
            Vocabulary::Chars(characters) => characters.chars().count(),
        }
    }

    /// Encodes a text as indices.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) with line and column for a character that is not in the vocabulary,
    /// [`ErrorKind::Value`](precast::ErrorKind::Value) for a vocabulary with a duplicate character.
    pub fn encode(&self, text: &str) -> Result<Vec<i64>> {
        self.indices(text, None)
    }

    /// Encodes a text as [`encode`](Vocabulary::encode) does; `origin` is the file in errors.
    fn indices(&self, text: &str, origin: Option<&str>) -> Result<Vec<i64>> {
        let Vocabulary::Chars(characters) = self else { return Ok(text.bytes().map(i64::from).collect()) };
        let mut indices = HashMap::new();
        for (i, character) in characters.chars().enumerate() {
            if indices.insert(character, i as i64).is_some() {
                return Err(Error::value(format!("the vocabulary has `{}` twice", character.escape_debug())));
            }
        }
        let index = |(at, character): (usize, char)| {
            indices.get(&character).copied().ok_or_else(|| {
                let (line, column) = end_of(&text[..at]);
                let words = format!("the vocabulary has no `{}`", character.escape_debug());
                match origin {
                    Some(file) => Error::data(words).at(file, line, column),
                    None => Error::data(format!("{line}:{column}: {words}")),
                }
            })
        };
        text.char_indices().map(index).collect()
    }

    /// Decodes indices to text; invalid UTF-8 becomes `U+FFFD`.
    ///
    /// # Errors
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) for an index that the vocabulary does not have.
    pub fn decode(&self, indices: &[i64]) -> Result<String> {
        let unknown =
            |index: i64| Error::data(format!("there is no token {index}; allowed: 0 to {}", self.size() as i64 - 1));
        match self {
            Vocabulary::Bytes => {
                let byte = |&index: &i64| u8::try_from(index).map_err(|_| unknown(index));
                let bytes: Vec<u8> = indices.iter().map(byte).collect::<Result<_>>()?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Vocabulary::Chars(characters) => {
                let characters: Vec<char> = characters.chars().collect();
                let character = |&index: &i64| {
                    usize::try_from(index).ok().and_then(|i| characters.get(i)).ok_or_else(|| unknown(index))
                };
                indices.iter().map(character).collect()
            }
        }
    }

    /// Returns the tokens, in the order of their indices; bytes other than letters are escaped, as `\x0a`.
    pub(super) fn tokens(&self) -> Vec<String> {
        match self {
            Vocabulary::Bytes => (0..=255u8).map(|byte| byte.escape_ascii().to_string()).collect(),
            Vocabulary::Chars(characters) => characters.chars().map(String::from).collect(),
        }
    }
}
