//! GGUF headers: whole models, split files, hostile bytes, and files written by other tools.

mod builder;
mod files;
mod hostile;
mod hybrids;
mod models;
mod pairs;
