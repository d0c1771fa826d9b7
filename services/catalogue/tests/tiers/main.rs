//! The services with leaves, as the catalogue starts them, over real sockets: what they answer is what a plain computation
//! says, under several threading models, and a leaf that is away makes answers partial.

mod hdsearch;
mod leaf_only;
mod recommend;
mod requirements;
mod router;
mod sets;
mod stores;
mod support;
