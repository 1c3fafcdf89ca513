//! `#[derive(TensorStruct)]`, for structs and enums whose fields all implement `opfuse::TensorStruct`.
//!
//! The parts of a value are those of its fields, in the order of declaration. An enum puts the number of its variant
//! first. A derive macro has to be in a crate of its own; nothing else is in here.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Fields, parse_macro_input, parse_quote};

/// Implements `opfuse::TensorStruct` field by field. Every field must implement it; a union is a compile error.
#[proc_macro_derive(TensorStruct)]
pub fn tensor_struct(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    implementation(input).unwrap_or_else(Error::into_compile_error).into()
}

fn implementation(mut input: DeriveInput) -> Result<TokenStream, Error> {
    let (tree_flatten, tree_unflatten) = match &input.data {
        Data::Struct(data) => {
            let Arm { pattern, tree_flatten, tree_unflatten } = arm(quote!(Self), &data.fields);
            (quote!(let #pattern = self; #tree_flatten), quote!(::core::option::Option::Some(#tree_unflatten)))
        }
        Data::Enum(data) => {
            let arms = data.variants.iter().enumerate().map(|(number, variant)| {
                let (name, number) = (&variant.ident, number as u64);
                let Arm { pattern, tree_flatten, tree_unflatten } = arm(quote!(Self::#name), &variant.fields);
                let tree_flatten = quote!(#pattern => { into.words.push(#number); #tree_flatten });
                (tree_flatten, quote!(#number => ::core::option::Option::Some(#tree_unflatten),))
            });
            let (tree_flatten, tree_unflatten): (Vec<_>, Vec<_>) = arms.unzip();
            (
                quote!(match self { #(#tree_flatten)* }),
                quote!(match from.word()? { #(#tree_unflatten)* _ => ::core::option::Option::None }),
            )
        }
        Data::Union(data) => {
            let what = "a union does not say which of its fields it holds; derive TensorStruct for an enum";
            return Err(Error::new_spanned(data.union_token, what));
        }
    };
    for parameter in input.generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(::opfuse::TensorStruct));
    }
    let name = &input.ident;
    let (generics, arguments, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #generics ::opfuse::TensorStruct for #name #arguments #where_clause {
            fn tree_flatten(&self, into: &mut ::opfuse::compile::Flat) {
                #tree_flatten
            }
            fn tree_unflatten(from: &mut ::opfuse::compile::Parts<'_>) -> ::core::option::Option<Self> {
                #tree_unflatten
            }
        }
    })
}

/// The code for the fields of a struct or of one variant.
struct Arm {
    /// Binds every field to a name of its own.
    pattern: TokenStream,
    tree_flatten: TokenStream,
    tree_unflatten: TokenStream,
}

fn arm(constructor: TokenStream, fields: &Fields) -> Arm {
    let members: Vec<_> = fields.members().collect();
    let names: Vec<_> = (0..members.len()).map(|index| format_ident!("field_{index}")).collect();
    Arm {
        pattern: quote!(#constructor { #(#members: #names),* }),
        tree_flatten: quote!(#(::opfuse::TensorStruct::tree_flatten(#names, into);)*),
        tree_unflatten: quote!(#constructor { #(#members: ::opfuse::TensorStruct::tree_unflatten(from)?),* }),
    }
}
