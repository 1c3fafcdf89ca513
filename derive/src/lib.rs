//! `#[derive(TensorStruct)]`, for structs and enums whose fields all implement `opfuse::TensorStruct`, and
//! `#[derive(Module)]` (`module.rs`).
//!
//! The parts of a value are those of its fields, in the order of declaration. An enum puts the number of its variant
//! first. A derive macro has to be in a crate of its own; nothing else is in here.

mod module;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Error, Field, Fields, LitStr, Member, parse_macro_input, parse_quote};

/// Implements `opfuse::TensorStruct` field by field. Every field must implement it; a union is a compile error.
///
/// Tensors are named by the fields that lead to them. `#[tensor(name = "…")]` on a field gives it another name.
#[proc_macro_derive(TensorStruct, attributes(tensor))]
pub fn tensor_struct(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    implementation(input).unwrap_or_else(Error::into_compile_error).into()
}

/// Implements `opfuse::nn::Module` field by field. A tensor is a parameter, and every other field implements `Module`.
///
/// Attributes of a field: `#[module(buffer)]` for tensors that are saved and not trained, `#[module(transient)]` for
/// tensors that are not even saved, `#[module(training)]` for the flag that `train` and `eval` set, `#[module(skip)]`
/// for what holds no tensor and is no `Module`, and `#[module(name = "…")]` for another name.
#[proc_macro_derive(Module, attributes(module))]
pub fn module(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    module::implementation(input).unwrap_or_else(Error::into_compile_error).into()
}

fn implementation(mut input: DeriveInput) -> Result<TokenStream, Error> {
    let (tree_flatten, tree_unflatten, tree_names) = match &input.data {
        Data::Struct(data) => {
            let Arm { pattern, tree_flatten, tree_unflatten, tree_names } = arm(quote!(Self), &data.fields)?;
            (
                quote!(let #pattern = self; #tree_flatten),
                quote!(::core::option::Option::Some(#tree_unflatten)),
                quote!(let #pattern = self; #tree_names),
            )
        }
        Data::Enum(data) => {
            let (mut flatten, mut unflatten, mut names) = (Vec::new(), Vec::new(), Vec::new());
            for (number, variant) in data.variants.iter().enumerate() {
                let (name, number) = (&variant.ident, number as u64);
                let Arm { pattern, tree_flatten, tree_unflatten, tree_names } =
                    arm(quote!(Self::#name), &variant.fields)?;
                flatten.push(quote!(#pattern => { into.words.push(#number); #tree_flatten }));
                unflatten.push(quote!(#number => ::core::option::Option::Some(#tree_unflatten),));
                names.push(quote!(#pattern => { #tree_names }));
            }
            (
                quote!(match self { #(#flatten)* }),
                quote!(match from.word()? { #(#unflatten)* _ => ::core::option::Option::None }),
                quote!(match self { #(#names)* }),
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
            #[allow(unused_variables, reason = "plain values have no names")]
            fn tree_names(&self, into: &mut ::opfuse::compile::Names) {
                #tree_names
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
    tree_names: TokenStream,
}

fn arm(constructor: TokenStream, fields: &Fields) -> Result<Arm, Error> {
    let members: Vec<_> = fields.members().collect();
    let names: Vec<_> = (0..members.len()).map(|index| format_ident!("field_{index}")).collect();
    let texts: Vec<String> = fields.iter().zip(fields.members()).map(name_of).collect::<Result<_, _>>()?;
    Ok(Arm {
        pattern: quote!(#constructor { #(#members: #names),* }),
        tree_flatten: quote!(#(::opfuse::TensorStruct::tree_flatten(#names, into);)*),
        tree_unflatten: quote!(#constructor { #(#members: ::opfuse::TensorStruct::tree_unflatten(from)?),* }),
        tree_names: quote!(#(into.part(#texts, |into| ::opfuse::TensorStruct::tree_names(#names, into));)*),
    })
}

/// What tensors are named by that are in a field: its own name, unless an attribute gives another one.
fn name_of((field, member): (&Field, Member)) -> Result<String, Error> {
    let mut name = match member {
        Member::Named(ident) => ident.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    };
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("tensor")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") {
                return Err(meta.error("only `name = \"…\"` is known here"));
            }
            name = meta.value()?.parse::<LitStr>()?.value();
            Ok(())
        })?;
    }
    Ok(name)
}
