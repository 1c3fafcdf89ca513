//! `#[derive(Module)]`: shows the tensors of each field, by name and role, to a visitor.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Error, Field, Fields, LitStr, Member, parse_quote};

/// What an attribute says about a field.
struct Named {
    name: String,
    kind: Kind,
}

/// How a field is visited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Parameter,
    Buffer,
    Transient,
    Training,
    Skip,
}

pub(crate) fn implementation(mut input: DeriveInput) -> Result<TokenStream, Error> {
    let arms: Vec<(TokenStream, TokenStream, TokenStream)> = match &input.data {
        Data::Struct(data) => vec![arm(quote!(Self), &data.fields)?],
        Data::Enum(data) => {
            let one = |variant: &syn::Variant| {
                let name = &variant.ident;
                arm(quote!(Self::#name), &variant.fields)
            };
            data.variants.iter().map(one).collect::<Result<_, _>>()?
        }
        Data::Union(data) => {
            let what = "a union does not say which of its fields it holds; derive Module for an enum";
            return Err(Error::new_spanned(data.union_token, what));
        }
    };
    let patterns: Vec<_> = arms.iter().map(|arm| &arm.0).collect();
    let shared: Vec<_> = arms.iter().map(|arm| &arm.1).collect();
    let mutable: Vec<_> = arms.iter().map(|arm| &arm.2).collect();
    for parameter in input.generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(::opfuse::nn::Module));
    }
    let name = &input.ident;
    let (generics, arguments, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        #[allow(unused_variables, reason = "plain fields are not visited")]
        impl #generics ::opfuse::nn::Module for #name #arguments #where_clause {
            fn visit(&self, visitor: &mut ::opfuse::nn::Visitor<'_>) {
                match self { #(#patterns => { #shared })* }
            }
            fn visit_mut(&mut self, visitor: &mut ::opfuse::nn::VisitorMut<'_>) {
                match self { #(#patterns => { #mutable })* }
            }
        }
    })
}

/// The pattern of a struct or a variant, and the calls that show its fields, shared and mutable.
fn arm(constructor: TokenStream, fields: &Fields) -> Result<(TokenStream, TokenStream, TokenStream), Error> {
    let members: Vec<_> = fields.members().collect();
    let bindings: Vec<_> = (0..members.len()).map(|index| format_ident!("field_{index}")).collect();
    let (mut shared, mut mutable) = (Vec::new(), Vec::new());
    for ((field, member), binding) in fields.iter().zip(fields.members()).zip(&bindings) {
        let Named { name, kind } = attributes(field, member)?;
        let role = match kind {
            Kind::Parameter => quote!(Parameter),
            Kind::Buffer => quote!(Buffer),
            Kind::Transient => quote!(Transient),
            Kind::Training => {
                mutable.push(quote!(visitor.training(#binding);));
                continue;
            }
            Kind::Skip => continue,
        };
        shared.push(quote!(visitor.field(#name, ::opfuse::nn::Role::#role, #binding);));
        mutable.push(quote!(visitor.field(#name, ::opfuse::nn::Role::#role, #binding);));
    }
    Ok((quote!(#constructor { #(#members: #bindings),* }), quote!(#(#shared)*), quote!(#(#mutable)*)))
}

fn attributes(field: &Field, member: Member) -> Result<Named, Error> {
    let name = match member {
        Member::Named(ident) => ident.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    };
    let mut named = Named { name, kind: Kind::Parameter };
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            let word = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
            named.kind = match word.as_str() {
                "buffer" => Kind::Buffer,
                "transient" => Kind::Transient,
                "training" => Kind::Training,
                "skip" => Kind::Skip,
                "name" => {
                    named.name = meta.value()?.parse::<LitStr>()?.value();
                    return Ok(());
                }
                _ => {
                    let known = "only `buffer`, `transient`, `training`, `skip` and `name = \"…\"` are known here";
                    return Err(meta.error(known));
                }
            };
            Ok(())
        })?;
    }
    Ok(named)
}
